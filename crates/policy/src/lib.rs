//! The policy language of AWS, as S3, IAM and STS use it: documents that say who may do what with which resource, and when.
//!
//! Pure: a [`Policy`] is parsed from bytes, and asked about a [`Request`] of which everything that a policy may look at is given. It reads no
//! clock, knows no store and no HTTP. [`decide`] puts the policies together that one request is under; an explicit deny always wins.
//!
//! Nothing here panics on any document or request. Documents are bounded ([`limits`]), recursion is bounded by the parser of JSON, and
//! so is the work that all policies take for a request ([`Context`]): what would take more is denied.
//!
//! Source: AWS, "IAM JSON policy reference", "Policy evaluation logic", "Actions, resources, and condition keys for Amazon S3", "The meaning
//! of 'public'".

#![forbid(unsafe_code)]

mod action;
mod arn;
mod check;
mod condition;
mod decide;
mod error;
mod json;
pub mod limits;
mod pattern;
mod policy;
mod principal;
mod public;
mod request;
mod statement;

pub use decide::{Layers, decide};
pub use error::PolicyError;
pub use policy::{Decision, Outcome, Policy};
pub use principal::Reach;
pub use public::ANONYMOUS_USER_ID;
pub use request::{Context, Principal, Request, Work};
