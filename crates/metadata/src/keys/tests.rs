use proptest::prelude::*;

use super::*;

fn name(text: &str) -> BucketName {
    BucketName::new(text).unwrap()
}

fn buckets() -> impl Strategy<Value = BucketName> {
    "[ab0][ab.-]{1,2}[ab]".prop_filter_map("a valid name", |text| BucketName::new(&text).ok())
}

/// Keys of few characters, zero and the bytes next to the escapes among them, so that many share prefixes.
fn texts() -> impl Strategy<Value = String> {
    "[\u{0}\u{1}\u{2}a/\u{7f}\u{ff}\u{10ffff}]{0,5}"
}

fn object_keys() -> impl Strategy<Value = ObjectKey> {
    texts().prop_filter_map("not empty", |text| ObjectKey::new(&text).ok())
}

fn uploads() -> impl Strategy<Value = UploadId> {
    prop_oneof![0..3_u128, Just(u128::MAX), any::<u128>()].prop_map(UploadId::from_u128)
}

proptest! {
    #[test]
    fn object_keys_keep_their_order(a in (buckets(), object_keys()), b in (buckets(), object_keys())) {
        prop_assert_eq!(object(&a.0, &a.1).cmp(&object(&b.0, &b.1)), a.cmp(&b));
        let encoded = object(&a.0, &a.1);
        prop_assert_eq!(decode_object(&encoded), Ok((a.0.as_str(), a.1.as_str())));
        prop_assert_eq!(decode_bucket(&bucket(&a.0)), Ok(a.0));
    }

    #[test]
    fn upload_keys_keep_their_order(
        a in (buckets(), object_keys(), uploads()),
        b in (buckets(), object_keys(), uploads()),
    ) {
        prop_assert_eq!(upload(&a.0, &a.1, a.2).cmp(&upload(&b.0, &b.1, b.2)), a.cmp(&b));
        let encoded = upload(&a.0, &a.1, a.2);
        prop_assert_eq!(decode_upload(&encoded), Ok((a.0.as_str(), a.1.as_str().to_owned(), a.2)));
    }

    #[test]
    fn version_keys_keep_their_order(
        a in (buckets(), object_keys(), prop::option::of(any::<u64>())),
        b in (buckets(), object_keys(), prop::option::of(any::<u64>())),
    ) {
        let which = |seq: Option<u64>| seq.map_or(VersionKey::Null, |seq| VersionKey::Of(Seq::from_u64(seq)));
        let order = |version: Option<u64>| version.map(|seq| !seq);
        let (one, other) = (version(&a.0, &a.1, which(a.2)), version(&b.0, &b.1, which(b.2)));
        prop_assert_eq!(one.cmp(&other), (&a.0, &a.1, order(a.2)).cmp(&(&b.0, &b.1, order(b.2))));
        prop_assert_eq!(version_of_object(&object(&a.0, &a.1), which(a.2)), &one[..]);
        prop_assert_eq!(one.starts_with(&numbered_of_object(&object(&a.0, &a.1))), a.2.is_some());
        prop_assert_eq!(decode_version(&one), Ok((a.0.as_str(), a.1.as_str().to_owned(), which(a.2))));
    }

    #[test]
    fn names_of_documents_are_read(at in prop::option::of(buckets()), name in "[a-z/]{1,8}") {
        let encoded = config(at.as_ref(), &name);
        prop_assert_eq!(decode_config(&encoded), Ok((at.clone(), name.as_str())));
    }

    #[test]
    fn prefixes_cover_what_begins_with_them(
        a in (buckets(), object_keys(), uploads()),
        at in buckets(),
        prefix in texts(),
    ) {
        let inside = a.0 == at && a.1.as_str().starts_with(&prefix);
        prop_assert_eq!(object(&a.0, &a.1).starts_with(&objects_with_prefix(&at, &prefix)), inside);
        prop_assert_eq!(upload(&a.0, &a.1, a.2).starts_with(&uploads_with_prefix(&at, &prefix)), inside);
        let same = a.0 == at && a.1.as_str() == prefix;
        prop_assert_eq!(upload(&a.0, &a.1, a.2).starts_with(&uploads_of(&at, &prefix)), same);
    }

    #[test]
    fn the_successor_parts_what_begins_with_a_prefix_from_what_is_above(
        prefix in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xfe), Just(0xff)], 0..4),
        key in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xfe), Just(0xff)], 0..6),
    ) {
        let above = successor(&prefix).is_some_and(|successor| key >= successor);
        prop_assert_eq!(above, key > prefix && !key.starts_with(&prefix));
    }

    #[test]
    fn numbers_keep_their_order(
        a in (0..3_u128, any::<u64>(), any::<u16>()),
        b in (0..3_u128, any::<u64>(), any::<u16>()),
    ) {
        let (ma, mb) = (ManifestId::from_u128(a.0), ManifestId::from_u128(b.0));
        let (ua, ub) = (UploadId::from_u128(a.0), UploadId::from_u128(b.0));
        prop_assert_eq!(manifest_page(ma, a.1).cmp(&manifest_page(mb, b.1)), (a.0, a.1).cmp(&(b.0, b.1)));
        prop_assert_eq!(manifest_part(ma, a.2).cmp(&manifest_part(mb, b.2)), (a.0, a.2).cmp(&(b.0, b.2)));
        prop_assert_eq!(part(ua, a.2).cmp(&part(ub, b.2)), (a.0, a.2).cmp(&(b.0, b.2)));
        prop_assert_eq!(decode_manifest(&manifest_page(ma, a.1)), Ok((ma, ManifestKey::Page(a.1))));
        prop_assert_eq!(decode_manifest(&manifest_part(ma, a.2)), Ok((ma, ManifestKey::Part(a.2))));
        prop_assert_eq!(decode_part(&part(ua, a.2)), Ok((ua, a.2)));
    }

    #[test]
    fn decoders_never_panic(key in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()], 0..40)) {
        let _ = decode_bucket(&key);
        let _ = decode_object(&key);
        let _ = decode_upload(&key);
        let _ = decode_part(&key);
        let _ = decode_manifest(&key);
        let _ = decode_segment(&key);
        let _ = decode_version(&key);
        let _ = decode_config(&key);
    }
}

#[test]
fn fixtures_of_version_1() {
    let (bucket, key) = (name("abc"), ObjectKey::new("k\0/").unwrap());
    assert_eq!(object(&bucket, &key), b"abc\0k\0/");
    assert_eq!(upload(&bucket, &key, UploadId::from_u128(2)), b"abc\0k\0\xff/\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02");
    assert_eq!(part(UploadId::from_u128(2), 258), b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\x01\x02");
    assert_eq!(
        manifest_page(ManifestId::from_u128(3), 0x0102),
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03x\0\0\0\0\0\0\x01\x02"
    );
    assert_eq!(manifest_part(ManifestId::from_u128(3), 0x0102), b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03p\x01\x02");
    assert_eq!(segment(SegmentId::from_u128(1)), b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    assert_eq!(system("format"), b"format");
}
