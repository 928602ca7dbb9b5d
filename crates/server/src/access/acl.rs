//! Access control lists: who is granted what on a bucket or an object, beside policies.
//!
//! Source: AWS, "Access control list (ACL) overview".

use gabion_policy::Reach;

use crate::credentials::{Identity, Principal};

/// Most grants of one list, as on AWS.
pub(crate) const GRANTS_MAX: usize = 100;

const GROUPS: &str = "http://acs.amazonaws.com/groups/";
/// Who `aws-exec-read` is for: EC2, which reads machine images.
const EC2: &str = "6aa5a366c34c1cbe25dc49211496e913e0351eb0e8c37aa3477e40942ec6b97c";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Read,
    Write,
    ReadAcp,
    WriteAcp,
    FullControl,
}

const PERMISSIONS: [(Permission, &str); 5] = [
    (Permission::Read, "READ"),
    (Permission::Write, "WRITE"),
    (Permission::ReadAcp, "READ_ACP"),
    (Permission::WriteAcp, "WRITE_ACP"),
    (Permission::FullControl, "FULL_CONTROL"),
];

impl Permission {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        PERMISSIONS.iter().find(|(_, known)| *known == name).map(|(permission, _)| *permission)
    }

    pub(crate) fn as_str(self) -> &'static str {
        PERMISSIONS.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }

    /// Whether who has it may do what `wanted` is for.
    fn covers(self, wanted: Permission) -> bool {
        self == wanted || self == Permission::FullControl
    }
}

/// To whom something is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grantee {
    /// An account, by its canonical id.
    Account(String),
    /// Everybody.
    AllUsers,
    /// Everybody who has an account.
    AuthenticatedUsers,
    /// What writes access logs.
    LogDelivery,
}

impl Grantee {
    pub(crate) fn group(uri: &str) -> Option<Self> {
        match uri.strip_prefix(GROUPS)? {
            "global/AllUsers" => Some(Self::AllUsers),
            "global/AuthenticatedUsers" => Some(Self::AuthenticatedUsers),
            "s3/LogDelivery" => Some(Self::LogDelivery),
            _ => None,
        }
    }

    /// What names the group; nothing for an account.
    pub(crate) fn uri(&self) -> Option<String> {
        let name = match self {
            Self::Account(_) => return None,
            Self::AllUsers => "global/AllUsers",
            Self::AuthenticatedUsers => "global/AuthenticatedUsers",
            Self::LogDelivery => "s3/LogDelivery",
        };
        Some(format!("{GROUPS}{name}"))
    }

    fn is_public(&self) -> bool {
        matches!(self, Self::AllUsers | Self::AuthenticatedUsers)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) grantee: Grantee,
    pub(crate) permission: Permission,
}

/// All grants on a bucket or an object: groups first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Acl(Vec<Grant>);

/// Whose a bucket and what is put in it are, by canonical id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners<'a> {
    /// Of what the list is for.
    pub(crate) own: &'a str,
    /// Of the bucket.
    pub(crate) bucket: &'a str,
}

impl Acl {
    pub(crate) fn new(mut grants: Vec<Grant>) -> Self {
        let mut unique: Vec<Grant> = Vec::with_capacity(grants.len());
        for grant in grants.drain(..) {
            if !unique.contains(&grant) {
                unique.push(grant);
            }
        }
        unique.sort_by_key(|grant| matches!(grant.grantee, Grantee::Account(_)));
        Self(unique)
    }

    /// The owner has full control.
    pub(crate) fn private(owner: &str) -> Self {
        Self(vec![Grant { grantee: Grantee::Account(owner.to_owned()), permission: Permission::FullControl }])
    }

    /// One of those that have names.
    pub(crate) fn canned(name: &str, owners: Owners<'_>) -> Option<Self> {
        use Permission::{FullControl, Read, ReadAcp, Write};
        let (all, authenticated) = (Grantee::AllUsers, Grantee::AuthenticatedUsers);
        let account = |id: &str| Grantee::Account(id.to_owned());
        // Full control that the owner has anyway is not granted twice.
        let more = match name {
            "private" => vec![],
            "public-read" => vec![(all, Read)],
            "public-read-write" => vec![(all.clone(), Read), (all, Write)],
            "authenticated-read" => vec![(authenticated, Read)],
            "aws-exec-read" => vec![(account(EC2), Read)],
            "log-delivery-write" => vec![(Grantee::LogDelivery, Write), (Grantee::LogDelivery, ReadAcp)],
            "bucket-owner-read" if owners.own != owners.bucket => vec![(account(owners.bucket), Read)],
            "bucket-owner-full-control" if owners.own != owners.bucket => vec![(account(owners.bucket), FullControl)],
            "bucket-owner-read" | "bucket-owner-full-control" => vec![],
            _ => return None,
        };
        let more = more.into_iter().map(|(grantee, permission)| Grant { grantee, permission });
        Some(Self::new(Self::private(owners.own).0.into_iter().chain(more).collect()))
    }

    pub(crate) fn grants(&self) -> &[Grant] {
        &self.0
    }

    /// Whether it grants something to everybody, or to all who have an account.
    pub(crate) fn is_public(&self) -> bool {
        self.0.iter().any(|grant| grant.grantee.is_public())
    }

    /// Whether it grants nothing to others than these.
    pub(crate) fn is_among(&self, owners: Owners<'_>) -> bool {
        let is_one = |id: &String| *id == owners.own || *id == owners.bucket;
        self.0.iter().all(|grant| matches!(&grant.grantee, Grantee::Account(id) if is_one(id)))
    }

    /// How it grants `wanted` to somebody.
    pub(crate) fn reach(&self, caller: &Identity, wanted: Permission, ignore_public: bool) -> Option<Reach> {
        // What is granted to all is not granted to a session itself: its boundary and its own policies limit it.
        let is_session = matches!(caller.principal, Principal::AssumedRole { .. });
        let as_one_of_all = if is_session { Reach::Role } else { Reach::Direct };
        let reach = |grant: &Grant| match &grant.grantee {
            grantee if ignore_public && grantee.is_public() => None,
            Grantee::AllUsers => Some(as_one_of_all),
            Grantee::AuthenticatedUsers if !caller.is_anonymous() => Some(as_one_of_all),
            Grantee::Account(id) if !caller.is_anonymous() && *id == caller.account.canonical_id => {
                Some(Reach::Account)
            }
            Grantee::Account(_) | Grantee::AuthenticatedUsers | Grantee::LogDelivery => None,
        };
        self.0.iter().filter(|grant| grant.permission.covers(wanted)).filter_map(reach).max()
    }

    /// As it is stored: a line per grant, `PERMISSION @group` or `PERMISSION =id`.
    pub(crate) fn encode(&self) -> String {
        let line = |grant: &Grant| {
            let grantee = match &grant.grantee {
                Grantee::Account(id) => format!("={id}"),
                Grantee::AllUsers => "@all".to_owned(),
                Grantee::AuthenticatedUsers => "@authenticated".to_owned(),
                Grantee::LogDelivery => "@log-delivery".to_owned(),
            };
            format!("{} {grantee}", grant.permission.as_str())
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Reads what [`Acl::encode`] wrote; nothing when that was a newer program.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let grant = |line: &str| {
            let (permission, grantee) = line.split_once(' ')?;
            let grantee = match grantee {
                "@all" => Grantee::AllUsers,
                "@authenticated" => Grantee::AuthenticatedUsers,
                "@log-delivery" => Grantee::LogDelivery,
                id => Grantee::Account(id.strip_prefix('=')?.to_owned()),
            };
            Some(Grant { grantee, permission: Permission::parse(permission)? })
        };
        text.lines().map(grant).collect::<Option<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::credentials::Account;

    const OWNERS: Owners<'_> = Owners { own: "w", bucket: "b" };

    fn shown(acl: &Acl) -> String {
        acl.encode().replace('\n', ", ")
    }

    #[test]
    fn canned_lists_are_those_of_aws() {
        let table = [
            ("private", "FULL_CONTROL =w"),
            ("public-read", "READ @all, FULL_CONTROL =w"),
            ("public-read-write", "READ @all, WRITE @all, FULL_CONTROL =w"),
            ("authenticated-read", "READ @authenticated, FULL_CONTROL =w"),
            ("bucket-owner-read", "FULL_CONTROL =w, READ =b"),
            ("bucket-owner-full-control", "FULL_CONTROL =w, FULL_CONTROL =b"),
            ("log-delivery-write", "WRITE @log-delivery, READ_ACP @log-delivery, FULL_CONTROL =w"),
        ];
        for (name, expected) in table {
            let acl = Acl::canned(name, OWNERS).unwrap();
            assert_eq!(shown(&acl), expected);
            assert_eq!(Acl::decode(&acl.encode()), Some(acl.clone()), "{name}");
            assert_eq!(acl.is_public(), expected.contains("@a"), "{name}");
            assert_eq!(acl.is_among(OWNERS), !expected.contains('@'), "{name}");
        }
        assert!(!Acl::canned("aws-exec-read", OWNERS).unwrap().is_among(OWNERS));
        assert_eq!(Acl::canned("bucket-owner-read", Owners { own: "b", bucket: "b" }), Some(Acl::private("b")));
        assert_eq!(Acl::canned("Public-Read", OWNERS), None);
        assert_eq!(Acl::decode("READ @nobody"), None);
        assert_eq!(Acl::decode(""), Some(Acl::default()));
    }

    #[test]
    fn grants_reach_those_to_whom_they_are_given() {
        use Permission::{FullControl, Read, Write};
        let of = |id: &str| {
            let account = Account { canonical_id: id.to_owned(), ..Account::first("d") };
            Identity::root(Arc::new(account), "AK")
        };
        let (own, other, nobody) = (of("w"), of("x"), Identity::anonymous());
        let reach = |name: &str, caller: &Identity, wanted, ignore| {
            Acl::canned(name, OWNERS).unwrap().reach(caller, wanted, ignore)
        };
        for wanted in [Read, Write, FullControl] {
            assert_eq!(reach("private", &own, wanted, true), Some(Reach::Account));
            assert_eq!(reach("private", &other, wanted, false), None);
            assert_eq!(reach("private", &nobody, wanted, false), None);
        }
        assert_eq!(reach("public-read", &nobody, Read, false), Some(Reach::Direct));
        assert_eq!(reach("public-read", &nobody, Write, false), None);
        assert_eq!(reach("public-read", &nobody, Read, true), None);
        assert_eq!(reach("authenticated-read", &nobody, Read, false), None);
        assert_eq!(reach("authenticated-read", &other, Read, false), Some(Reach::Direct));
        assert_eq!(reach("authenticated-read", &other, Read, true), None);
        assert_eq!(reach("log-delivery-write", &other, Write, false), None);
        // A session is limited by its own policies in what is granted to all.
        let session = Identity {
            principal: Principal::AssumedRole {
                role: "r".into(),
                path: "/".into(),
                id: "AROAX".into(),
                session: "s".into(),
                tags: Vec::new(),
            },
            ..other
        };
        assert_eq!(reach("authenticated-read", &session, Read, false), Some(Reach::Role));
        assert_eq!(reach("public-read", &session, Read, false), Some(Reach::Role));
        // Nobody has the canonical id of those who have none.
        let to_nobody = Acl::private(&nobody.account.canonical_id);
        assert_eq!(to_nobody.reach(&nobody, Read, false), None);
    }
}
