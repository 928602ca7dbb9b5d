//! The switches of a bucket that are about access: who owns what is put in it, and what public access is refused whatever is granted.

use s3s::dto;

/// Whose the objects of a bucket are, and whether ACLs count.
///
/// Source: AWS, "Controlling ownership of objects and disabling ACLs for your bucket".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ownership {
    /// The bucket's owner owns everything, and ACLs are not looked at.
    #[default]
    BucketOwnerEnforced,
    /// Who writes an object owns it, unless he gives it away with `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// Who writes an object owns it.
    ObjectWriter,
}

impl Ownership {
    /// Reads its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::BucketOwnerEnforced, Self::BucketOwnerPreferred, Self::ObjectWriter]
            .into_iter()
            .find(|ownership| ownership.as_str() == name)
    }

    /// Its name in AWS's API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BucketOwnerEnforced => "BucketOwnerEnforced",
            Self::BucketOwnerPreferred => "BucketOwnerPreferred",
            Self::ObjectWriter => "ObjectWriter",
        }
    }

    /// Whether ACLs count.
    #[must_use]
    pub fn has_acls(self) -> bool {
        self != Self::BucketOwnerEnforced
    }
}

/// What a bucket says about its ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum OwnershipControls {
    /// Nothing: it is as the deployment has it.
    #[default]
    Unsaid,
    /// That it has no controls any more, as buckets were before there were any: ACLs count.
    Removed,
    Said(Ownership),
}

/// Document of [`OwnershipControls::Removed`].
pub(crate) const REMOVED: &str = "none";

impl OwnershipControls {
    /// Reads the document. What is not understood allows nothing that could be refused: ACLs do not count.
    pub(crate) fn decode(document: &[u8]) -> Self {
        match std::str::from_utf8(document) {
            Ok(REMOVED) => Self::Removed,
            Ok(name) => Self::Said(Ownership::parse(name).unwrap_or_default()),
            Err(_) => Self::Said(Ownership::BucketOwnerEnforced),
        }
    }

    /// What holds, where `usual` is what the deployment has.
    pub(crate) fn ownership(self, usual: Ownership) -> Ownership {
        match self {
            Self::Unsaid => usual,
            Self::Removed => Ownership::ObjectWriter,
            Self::Said(ownership) => ownership,
        }
    }

    /// What the bucket is said to have.
    pub(crate) fn shown(self, usual: Ownership) -> Option<Ownership> {
        match self {
            Self::Unsaid if usual.has_acls() => None,
            Self::Unsaid => Some(usual),
            Self::Removed => None,
            Self::Said(ownership) => Some(ownership),
        }
    }
}

/// Public access that is refused, whatever ACLs and policies grant.
///
/// Source: AWS, "Blocking public access to your Amazon S3 storage".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct PublicAccessBlock {
    /// ACLs that grant something to the public are refused.
    pub(crate) block_acls: bool,
    /// Grants to the public do not count.
    pub(crate) ignore_acls: bool,
    /// Policies that are public are refused.
    pub(crate) block_policy: bool,
    /// A policy that is public grants nothing outside of the bucket's account.
    pub(crate) restrict: bool,
}

impl PublicAccessBlock {
    const ALL: Self = Self { block_acls: true, ignore_acls: true, block_policy: true, restrict: true };

    pub(crate) fn new(asked: &dto::PublicAccessBlockConfiguration) -> Self {
        Self {
            block_acls: asked.block_public_acls.unwrap_or(false),
            ignore_acls: asked.ignore_public_acls.unwrap_or(false),
            block_policy: asked.block_public_policy.unwrap_or(false),
            restrict: asked.restrict_public_buckets.unwrap_or(false),
        }
    }

    /// Names in AWS's API, and whether they are on.
    pub(crate) fn switches(self) -> [(&'static str, bool); 4] {
        [
            ("BlockPublicAcls", self.block_acls),
            ("IgnorePublicAcls", self.ignore_acls),
            ("BlockPublicPolicy", self.block_policy),
            ("RestrictPublicBuckets", self.restrict),
        ]
    }

    /// As it is stored: the names of those that are on, in words.
    pub(crate) fn encode(self) -> String {
        self.switches().into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    /// Reads what [`PublicAccessBlock::encode`] wrote; when that was a newer program, all are on.
    pub(crate) fn decode(document: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(document) else { return Self::ALL };
        let mut block = Self::default();
        for word in text.split_ascii_whitespace() {
            match word {
                "BlockPublicAcls" => block.block_acls = true,
                "IgnorePublicAcls" => block.ignore_acls = true,
                "BlockPublicPolicy" => block.block_policy = true,
                "RestrictPublicBuckets" => block.restrict = true,
                _ => return Self::ALL,
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ownership_is_what_is_said_or_usual() {
        use Ownership::{BucketOwnerEnforced, BucketOwnerPreferred, ObjectWriter};
        let table = [
            (None, BucketOwnerEnforced, BucketOwnerEnforced, Some(BucketOwnerEnforced)),
            (None, ObjectWriter, ObjectWriter, None),
            (Some("none"), BucketOwnerEnforced, ObjectWriter, None),
            (Some("BucketOwnerPreferred"), BucketOwnerEnforced, BucketOwnerPreferred, Some(BucketOwnerPreferred)),
            (Some("BucketOwnerEnforced"), ObjectWriter, BucketOwnerEnforced, Some(BucketOwnerEnforced)),
            (Some("Something newer"), ObjectWriter, BucketOwnerEnforced, Some(BucketOwnerEnforced)),
        ];
        for (document, usual, ownership, shown) in table {
            let controls =
                document.map_or(OwnershipControls::Unsaid, |text| OwnershipControls::decode(text.as_bytes()));
            assert_eq!((controls.ownership(usual), controls.shown(usual)), (ownership, shown), "{document:?}");
        }
    }

    #[test]
    fn switches_are_read_as_they_were_written() {
        for bits in 0..16_u8 {
            let on = |bit: u8| bits & bit != 0;
            let block =
                PublicAccessBlock { block_acls: on(1), ignore_acls: on(2), block_policy: on(4), restrict: on(8) };
            assert_eq!(PublicAccessBlock::decode(block.encode().as_bytes()), block);
        }
        assert_eq!(PublicAccessBlock::decode(b"BlockPublicAcls BlockEverything"), PublicAccessBlock::ALL);
        assert_eq!(PublicAccessBlock::decode(b"\xff"), PublicAccessBlock::ALL);
    }
}
