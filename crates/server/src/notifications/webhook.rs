//! A webhook: messages are posted one after the other, over a connection that is kept.

use std::time::Duration;

use super::delivery::Message;
use crate::credentials::SecretKey;
use crate::fetch::Poster;

/// Longest time for a post.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tells one message from another, whenever it comes.
const ID: &str = "x-gabion-notification-id";

/// Posts messages.
pub(super) struct Webhook {
    poster: Poster,
}

impl Webhook {
    pub(super) fn new(url: &str, token: Option<&SecretKey>) -> Self {
        let authorization = token.map(|token| format!("Bearer {}", token.expose()));
        Self { poster: Poster::new(url, "application/json", authorization) }
    }

    /// Posts messages in their order; gives how many were taken, and why no more were.
    pub(super) async fn send(&mut self, messages: &[Message]) -> (usize, Result<(), String>) {
        for (at, message) in messages.iter().enumerate() {
            if let Err(error) = self.poster.post(&[(ID, &message.id)], message.body.clone(), PATIENCE).await {
                return (at, Err(error));
            }
        }
        (messages.len(), Ok(()))
    }
}
