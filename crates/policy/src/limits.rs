//! How large documents may be, in bytes. Source: AWS, "IAM and AWS STS quotas", "Bucket policies".

/// A bucket's policy. No document of any kind is larger.
pub const BUCKET_POLICY_BYTES_MAX: usize = 20 * 1024;
/// A managed policy.
pub const MANAGED_POLICY_BYTES_MAX: usize = 6144;
/// All inline policies of a user together.
pub const USER_POLICY_BYTES_MAX: usize = 2048;
/// All inline policies of a role together.
pub const ROLE_POLICY_BYTES_MAX: usize = 10_240;
/// All inline policies of a group together.
pub const GROUP_POLICY_BYTES_MAX: usize = 5120;
/// The policy that says who may take on a role.
pub const TRUST_POLICY_BYTES_MAX: usize = 4096;
/// A session's policy.
pub const SESSION_POLICY_BYTES_MAX: usize = 2048;
