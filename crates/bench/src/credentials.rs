//! In whose name requests are signed: credentials from the flags, or else from the environment.

use anyhow::Context;

use crate::{cli::AccessArgs, sign::Identity};

/// Variables that name one identity.
struct Family {
    access_key: &'static str,
    secret_key: &'static str,
    session_token: &'static str,
}

/// In the order in which they are asked.
const FAMILIES: [Family; 2] = [
    Family { access_key: "GABION_ACCESS_KEY", secret_key: "GABION_SECRET_KEY", session_token: "GABION_SESSION_TOKEN" },
    Family { access_key: "AWS_ACCESS_KEY_ID", secret_key: "AWS_SECRET_ACCESS_KEY", session_token: "AWS_SESSION_TOKEN" },
];

/// A value, and the place in [`FAMILIES`] where it was found; a flag has none.
type Found = (String, Option<usize>);

/// The identity that flags and environment name.
///
/// # Errors
/// When there is no access key or no secret key.
pub(crate) fn identity(args: &AccessArgs) -> anyhow::Result<Identity> {
    identity_in(args, &|name| std::env::var(name).ok())
}

fn identity_in(args: &AccessArgs, variable: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Identity> {
    let pick = |flag: &Option<String>, name: fn(&Family) -> &'static str, what: &str, option: &str| {
        let families = || FAMILIES.iter().enumerate();
        let from_environment = || {
            families().find_map(|(place, family)| {
                let value = variable(name(family)).filter(|value| !value.is_empty())?;
                Some((value, Some(place)))
            })
        };
        let found: Option<Found> = flag.clone().map(|value| (value, None)).or_else(from_environment);
        found.with_context(|| {
            let [one, other] = FAMILIES.each_ref().map(name);
            format!("no {what}: set {one} or {other} in the environment, or give {option}")
        })
    };
    let (access_key, access_place) = pick(&args.access_key, |family| family.access_key, "access key", "--access-key")?;
    let (secret_key, secret_place) = pick(&args.secret_key, |family| family.secret_key, "secret key", "--secret-key")?;
    // A token belongs to its keys: with those of others it would only have them refused.
    let place = match (access_place, secret_place) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => one.or(other),
    };
    let from_environment = || variable(FAMILIES[place?].session_token);
    let session_token = args.session_token.clone().or_else(from_environment).filter(|token| !token.is_empty());
    Ok(Identity { access_key, secret_key, session_token, region: args.region.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Operation, Settings};

    /// Access key, secret key and token by these flags, in an environment of these variables.
    fn found(flags: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<(String, String, Option<String>)> {
        let args = Settings::for_tests(Operation::Put, flags).load.access;
        let value =
            |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| (*value).to_owned());
        let Identity { access_key, secret_key, session_token, .. } = identity_in(&args, &value)?;
        Ok((access_key, secret_key, session_token))
    }

    #[test]
    fn a_token_is_of_the_family_that_the_keys_are_of() {
        let gabion = [("GABION_ACCESS_KEY", "g"), ("GABION_SECRET_KEY", "gs")];
        let aws = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "as")];
        let tokens = [("GABION_SESSION_TOKEN", "gt"), ("AWS_SESSION_TOKEN", "at")];
        let all = [&gabion[..], &aws, &tokens].concat();
        let (access, secret, token) = (["--access-key", "f"], ["--secret-key", "fs"], ["--session-token", "ft"]);
        let keys = [access, secret].concat();
        type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], (&'a str, &'a str, Option<&'a str>));
        let rows: [Row<'_>; 12] = [
            (&[], &all, ("g", "gs", Some("gt"))),
            (&[], &[&aws[..], &tokens].concat(), ("a", "as", Some("at"))),
            (&[], &[&gabion[..], &tokens[1..]].concat(), ("g", "gs", None)),
            (&[], &[&aws[..], &tokens[..1]].concat(), ("a", "as", None)),
            (&[], &[&gabion[..1], &aws[1..], &tokens].concat(), ("g", "as", None)),
            (&[], &[&gabion[..], &[("GABION_SESSION_TOKEN", "")]].concat(), ("g", "gs", None)),
            (&[], &gabion, ("g", "gs", None)),
            (&access, &all, ("f", "gs", Some("gt"))),
            (&secret, &[&aws[..], &tokens].concat(), ("a", "fs", Some("at"))),
            (&keys, &all, ("f", "fs", None)),
            (&[&keys[..], &token].concat(), &all, ("f", "fs", Some("ft"))),
            (&token, &all, ("g", "gs", Some("ft"))),
        ];
        for (flags, variables, (access_key, secret_key, session_token)) in rows {
            let expected = (access_key.to_owned(), secret_key.to_owned(), session_token.map(str::to_owned));
            assert_eq!(found(flags, variables).unwrap(), expected, "{flags:?} {variables:?}");
        }
    }

    #[test]
    fn keys_that_are_missing_are_named() {
        let error = found(&[], &[("AWS_SESSION_TOKEN", "t")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no access key: set GABION_ACCESS_KEY or AWS_ACCESS_KEY_ID in the environment, or give --access-key"
        );
        let error = found(&["--access-key", "f"], &[]).unwrap_err().to_string();
        assert!(error.contains("no secret key: set GABION_SECRET_KEY or AWS_SECRET_ACCESS_KEY"), "{error}");
    }
}
