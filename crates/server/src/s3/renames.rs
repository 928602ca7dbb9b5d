//! RenameObject.
//!
//! Source: AWS, "RenameObject", "Renaming objects in directory buckets". There it is an operation of directory buckets; here of all that keep no versions.

use gabion_store::RenameObject;
use gabion_types::{ObjectKey, ObjectKeyError};
use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use s3s::Body;

use super::call::Call;
use super::{answer, conditions, encryption, notifications};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

const SOURCE: &str = "x-amz-rename-source";
const TOKEN: &str = "x-amz-client-token";
/// Longest token of a client.
const TOKEN_BYTES_MAX: usize = 64;

pub(super) async fn rename(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let request = RenameObject {
        bucket: call.bucket()?,
        from: renamed_key(call)?,
        to: call.key()?,
        source_conditions: conditions::of_rename(ops, call, "x-amz-rename-source-")?,
        target_conditions: conditions::of_rename(ops, call, "")?,
        client_token: call.header(TOKEN)?.map(token).transpose()?,
        customer: encryption::reading(call)?.map(|customer| customer.key),
    };
    if [&request.from, &request.to].iter().any(|key| key.as_str().ends_with('/')) {
        return Err(S3Error::request("Objects whose keys end with a slash can not be renamed."));
    }
    let from = request.from.clone();
    let renamed = ops.store.rename_object(request).await.map_err(|error| {
        let error = S3Error::from(error);
        if error.code == S3Code::NoSuchKey { error.detail("Key", from.as_str()) } else { error }
    })?;
    if call.watch.is_some() {
        let told = notifications::renamed(from.as_str(), call.key()?.as_str(), &renamed);
        notifications::tell(ops, call, told).await?;
    }
    Ok(answer::empty(StatusCode::OK))
}

/// The key of the object that a request renames: of the bucket that it names, encoded as in a URL.
///
/// # Errors
/// `InvalidArgument`, `KeyTooLongError`.
pub(crate) fn renamed_key(call: &Call) -> Result<ObjectKey, S3Error> {
    parse_source(call.header(SOURCE)?.unwrap_or_default())
}

fn parse_source(text: &str) -> Result<ObjectKey, S3Error> {
    let key = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| S3Error::argument(SOURCE, text, "The x-amz-rename-source header must be valid and URL encoded"))?;
    ObjectKey::new(&key).map_err(|error| match error {
        ObjectKeyError::TooLong => S3Code::KeyTooLongError.into(),
        ObjectKeyError::Empty => S3Error::argument(SOURCE, text, "Rename source must name a key of the bucket"),
    })
}

fn token(text: &str) -> Result<String, S3Error> {
    if text.len() <= TOKEN_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(S3Error::argument(TOKEN, text, "A client token has at most 64 printable ASCII characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_keys() {
        let long = "k".repeat(1025);
        let table = [
            ("k", Ok("k")),
            ("a/b%20c%2Bd+e", Ok("a/b c+d+e")),
            ("/bkt/k", Ok("/bkt/k")),
            ("", Err(S3Code::InvalidArgument)),
            ("%ff", Err(S3Code::InvalidArgument)),
            (&long, Err(S3Code::KeyTooLongError)),
        ];
        for (text, expected) in table {
            let got = parse_source(text).map_err(|error| error.code);
            assert_eq!(got.as_ref().map(ObjectKey::as_str), expected.as_ref().copied(), "{text}");
        }
    }

    #[test]
    fn tokens_are_short_and_can_be_seen() {
        let most = "~".repeat(64);
        for (text, is_valid) in
            [("!", true), (&*most, true), (&format!("{most}!"), false), ("a b", false), ("ü", false)]
        {
            assert_eq!(token(text).is_ok(), is_valid, "{text}");
        }
    }
}
