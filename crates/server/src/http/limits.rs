//! What one listener allows its clients, with units and reasons.

use std::time::Duration;

/// Limits against slow, idle, greedy and numerous clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Most connections that are served at once, over all listeners; further ones are accepted one per listener and
    /// wait, the rest waits in the kernel's backlog.
    pub connections_max: usize,
    /// Longest time for a TLS handshake, from the first byte of a request's head to its last, and from accepting a
    /// connection to the end of its first head.
    pub header_timeout: Duration,
    /// Longest time that a connection may stay open between two requests.
    pub idle_timeout: Duration,
    /// A body must move [`HttpLimits::progress_bytes_min`] in every such time that the server waited for its client.
    pub progress_timeout: Duration,
    /// Bytes that must move, in either direction, in every [`HttpLimits::progress_timeout`]; at least 1.
    pub progress_bytes_min: u64,
    /// Most header fields of a request.
    pub header_count_max: usize,
    /// Most bytes of a request's target and header fields, names and values together.
    pub header_bytes_max: usize,
    /// Most bytes that an HTTP/1 connection buffers in each direction; from 8192. Also bounds a request's head.
    pub buffer_bytes_max: usize,
    /// Most concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long a shutdown waits for requests in flight before it cuts them.
    pub drain_timeout: Duration,
}

/// Smallest buffer that hyper accepts, in bytes.
pub const BUFFER_BYTES_MIN: usize = 8192;

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            // A Slurm job with one gateway per storage node opens hundreds of connections per compute node.
            connections_max: 4096,
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            progress_timeout: Duration::from_secs(30),
            progress_bytes_min: 4096,
            header_count_max: 100,
            // AWS takes 8 KiB of headers; presigned requests carry tokens and user metadata in several forms.
            header_bytes_max: 32 * 1024,
            // With half of it large answers cost a fifth more (docs/MEASUREMENTS.md, "What a body passes through").
            buffer_bytes_max: 512 * 1024,
            streams_max: 128,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
