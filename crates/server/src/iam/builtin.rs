//! Managed policies that are there in every account, by AWS's names: what their documents allow is said here in our own words, for the services that
//! there are.

use super::error::IamError;

/// A managed policy of everybody's.
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) id: &'static str,
    pub(crate) description: &'static str,
    pub(crate) document: &'static str,
}

/// What their ARNs begin with.
pub(crate) const ARN_PREFIX: &str = "arn:aws:iam::aws:policy/";

/// All of them, in the order of their names.
pub(crate) const ALL: &[Builtin] = &[
    Builtin {
        name: "AdministratorAccess",
        id: "ANPAGABIONADMINISTRATO",
        description: "Allows everything.",
        document: r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#,
    },
    Builtin {
        name: "AmazonS3FullAccess",
        id: "ANPAGABIONS3FULLACCESS",
        description: "Allows everything with buckets and objects.",
        document: r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#,
    },
    Builtin {
        name: "AmazonS3ReadOnlyAccess",
        id: "ANPAGABIONS3READONLYAC",
        description: "Allows to read and list buckets and objects.",
        document: r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:Get*","s3:List*","s3:Describe*"],"Resource":"*"}]}"#,
    },
    Builtin {
        name: "IAMFullAccess",
        id: "ANPAGABIONIAMFULLACCES",
        description: "Allows everything with users, groups, roles and policies.",
        document: r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:*","Resource":"*"}]}"#,
    },
    Builtin {
        name: "IAMReadOnlyAccess",
        id: "ANPAGABIONIAMREADONLYA",
        description: "Allows to read and list users, groups, roles and policies.",
        document: r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["iam:Get*","iam:List*"],"Resource":"*"}]}"#,
    },
];

/// The one with this ARN.
pub(crate) fn find(arn: &str) -> Option<&'static Builtin> {
    let name = arn.strip_prefix(ARN_PREFIX)?;
    ALL.iter().find(|builtin| builtin.name == name)
}

/// That nobody may change one.
pub(crate) fn refuse_change(arn: &str) -> Result<(), IamError> {
    match arn.starts_with(ARN_PREFIX) {
        true => Err(IamError::forbidden(
            "AccessDenied",
            format!("The policy {arn} belongs to everybody and is not changed."),
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use gabion_policy::Policy;

    use super::*;

    #[test]
    fn all_of_them_are_policies_and_found_by_their_arn() {
        for builtin in ALL {
            Policy::parse(builtin.document.as_bytes()).unwrap();
            let arn = format!("{ARN_PREFIX}{}", builtin.name);
            assert_eq!(find(&arn).unwrap().id, builtin.id);
            assert!(refuse_change(&arn).is_err());
        }
        assert!(ALL.is_sorted_by_key(|builtin| builtin.name));
        assert!(find("arn:aws:iam::123456789012:policy/AdministratorAccess").is_none());
    }
}
