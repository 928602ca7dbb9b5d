//! Who gets in, and what a holder of a signature can not do with it.

use crate::harness::{Call, Payload, S3, Sign};

#[tokio::test]
async fn signed_requests_get_in() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("hello").send(&s3).await.expect(200);
    s3.put("/bkt/u").body("hello").payload(Payload::Unsigned).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt/k").send(&s3).await.expect(200).text(), "hello");
    assert_eq!(s3.get("/bkt/k").sign(Sign::Query(60)).send(&s3).await.expect(200).text(), "hello");
    s3.put("/bkt/p").body("presigned").sign(Sign::Query(60)).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt/p").send(&s3).await.text(), "presigned");
}

#[tokio::test]
async fn keys_of_all_kinds_are_signed() {
    let s3 = S3::with_bucket().await;
    for path in
        ["/bkt/a%20b", "/bkt/a%2Bb", "/bkt/%C3%BC/%E2%82%AC", "/bkt/a//b", "/bkt/%2525", "/bkt/a%3Fb%3Dc", "/bkt/~.-_"]
    {
        s3.put(path).body(path).send(&s3).await.expect(200);
        assert_eq!(s3.get(path).send(&s3).await.expect(200).text(), path);
        assert_eq!(s3.get(path).sign(Sign::Query(60)).send(&s3).await.expect(200).text(), path);
    }
}

#[tokio::test]
async fn anonymous_is_refused() {
    let s3 = S3::with_bucket().await;
    for target in ["/bkt", "/bkt/k", "/bkt?acl", "/bkt/k?response-content-type=text%2Fhtml"] {
        s3.get(target).sign(Sign::Not).send(&s3).await.refused(403, "AccessDenied");
    }
    for call in
        [s3.put("/bkt/k").body("x"), s3.delete("/bkt"), s3.post("/bkt?delete").body("<Delete/>"), s3.put("/other")]
    {
        let (answer, polled) = call.sign(Sign::Not).send_head(&s3).await;
        answer.refused(403, "AccessDenied");
        assert!(!polled, "an anonymous body was read");
    }
    s3.get("/bkt").send(&s3).await.expect(200);
}

#[tokio::test]
async fn wrong_keys_are_refused() {
    let s3 = S3::with_bucket().await;
    let call = s3.get("/bkt");
    call.clone().change(|call| call.secret_key = "wrong").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    call.clone().change(|call| call.access_key = "NOBODY").send(&s3).await.refused(403, "InvalidAccessKeyId");
    let presigned = call.clone().sign(Sign::Query(60));
    presigned.clone().change(|call| call.secret_key = "wrong").send(&s3).await.refused(403, "SignatureDoesNotMatch");
    let region = call.clone().change(|call| call.region = "eu-west-1").send(&s3).await;
    assert_eq!(region.refused(400, "AuthorizationHeaderMalformed").element("Region").as_deref(), Some("us-east-1"));
    call.clone().header("x-amz-security-token", "t").send(&s3).await.refused(400, "InvalidToken");
    let nobody = call.header("x-amz-security-token", "t").change(|call| call.access_key = "NOBODY");
    nobody.send(&s3).await.refused(403, "InvalidAccessKeyId");
    // The text that is signed has it in hexadecimal digits.
    let base64 = crate::harness::checksum(gabion_store::ChecksumAlgorithm::Sha256, b"x");
    let put = s3.put("/bkt/k").body("x").payload(Payload::Says(base64));
    put.send(&s3).await.refused(400, "InvalidArgument");
}

/// So that who signs can see where he differs.
#[tokio::test]
async fn a_mismatch_says_what_was_signed() {
    let s3 = S3::with_bucket().await;
    let wrong = |call: crate::harness::Call| call.change(|call| call.secret_key = "wrong");
    for call in [s3.get("/bkt/a%20b?versionId=null"), s3.get("/bkt?uploads"), s3.get("/bkt/k").sign(Sign::Query(60))] {
        let answer = wrong(call).send(&s3).await.refused(403, "SignatureDoesNotMatch");
        let element = |name: &str| answer.element(name).unwrap_or_default().replace("&amp;", "&");
        assert_eq!(element("AWSAccessKeyId"), crate::harness::ACCESS_KEY);
        assert_eq!(
            element("Message"),
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        );
        let canonical = element("CanonicalRequest");
        assert!(canonical.starts_with("GET\n/bkt"), "{canonical}");
        let hash = crate::harness::sha256_hex(canonical.as_bytes());
        assert!(element("StringToSign").ends_with(&hash), "{}", answer.text());
        assert!(element("StringToSignBytes").starts_with("41 57 53 34 2d 48 4d 41 43"));
        assert_eq!(element("SignatureProvided").len(), 64);
    }
    let nobody = s3.get("/bkt").change(|call| call.access_key = "NOBODY").send(&s3).await;
    assert_eq!(nobody.refused(403, "InvalidAccessKeyId").element("AWSAccessKeyId").as_deref(), Some("NOBODY"));
    let keyed = wrong(s3.get("/bkt/k").header("x-amz-server-side-encryption-customer-key", "c2VjcmV0")).send(&s3).await;
    assert!(!keyed.refused(403, "SignatureDoesNotMatch").text().contains("c2VjcmV0"));
    // What may have been put in behind the client, or by its browser, is not told either.
    let cookie = wrong(s3.get("/bkt/k").header("cookie", "c2VjcmV0")).send(&s3).await;
    assert!(!cookie.refused(403, "SignatureDoesNotMatch").text().contains("c2VjcmV0"));
}

#[tokio::test]
async fn a_signature_holds_for_its_time_only() {
    let s3 = S3::with_bucket().await;
    for clock_s in [-880, 880] {
        s3.get("/bkt").change(|call| call.clock_s = clock_s).send(&s3).await.expect(200);
    }
    for clock_s in [-920, 920] {
        let answer = s3.get("/bkt").change(|call| call.clock_s = clock_s).send(&s3).await;
        answer.refused(403, "RequestTimeTooSkewed");
    }
    let presigned =
        |expires_s, clock_s| s3.get("/bkt").sign(Sign::Query(expires_s)).change(|call| call.clock_s = clock_s);
    presigned(600, -500).send(&s3).await.expect(200);
    let expired = presigned(600, -700).send(&s3).await.refused(403, "AccessDenied");
    assert_eq!(expired.element("Message").as_deref(), Some("Request has expired"));
    presigned(604_800, -604_000).send(&s3).await.expect(200);
    presigned(604_801, 0).send(&s3).await.refused(400, "AuthorizationQueryParametersError");
    let early = presigned(600, 920).send(&s3).await.refused(403, "AccessDenied");
    assert_eq!(early.element("Message").as_deref(), Some("Request is not yet valid"));
}

/// The attack that older versions of s3s let through: who was given a URL to upload to makes it copy a secret.
#[tokio::test]
async fn a_presigned_put_does_not_become_a_copy() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/secret").body("secret").send(&s3).await.expect(200);
    for source in ["/bkt/secret", "bkt%2Fsecret"] {
        let upload = s3.put("/bkt/mine").sign(Sign::Query(60)).smuggle("x-amz-copy-source", source);
        upload.send(&s3).await.refused(403, "AccessDenied");
    }
    s3.get("/bkt/mine").send(&s3).await.refused(404, "NoSuchKey");
}

#[tokio::test]
async fn unsigned_amz_headers_are_refused() {
    let s3 = S3::with_bucket().await;
    let smuggled = [
        ("x-amz-copy-source", "/bkt/k"),
        ("x-amz-copy-source-range", "bytes=0-1"),
        ("x-amz-meta-evil", "1"),
        ("X-Amz-Meta-Evil", "1"),
        ("x-amz-acl", "public-read"),
        ("x-amz-acl", "private"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-storage-class", "STANDARD"),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-amz-metadata-directive", "REPLACE"),
        ("x-amz-decoded-content-length", "5"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-expected-bucket-owner", "123456789012"),
        ("x-amz-anything", "1"),
    ];
    for (name, value) in smuggled {
        for sign in [Sign::Query(60), Sign::Header] {
            let call = s3.put("/bkt/victim").body("hello").sign(sign).smuggle(name, value);
            call.send(&s3).await.refused(403, "AccessDenied");
        }
    }
    s3.get("/bkt/victim").send(&s3).await.refused(404, "NoSuchKey");
    s3.put("/bkt/victim").body("x").header("x-amz-meta-good", "1").send(&s3).await.expect(200);
}

#[tokio::test]
async fn a_signature_without_host_is_refused() {
    let s3 = S3::with_bucket().await;
    for sign in [Sign::Header, Sign::Query(60)] {
        let call = s3.get("/bkt").sign(sign).header("x-amz-meta-a", "1").change(|call| call.unlisted = vec!["host"]);
        call.send(&s3).await.refused(403, "AccessDenied");
    }
}

#[tokio::test]
async fn signed_headers_and_queries_can_not_be_changed() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let mut request = s3.get("/bkt/k").sign(Sign::Query(60)).build();
    let target = format!("{}&response-content-type=text%2Fhtml", request.uri());
    *request.uri_mut() = target.parse().unwrap();
    let (parts, body) = request.into_parts();
    let body = crate::harness::Sent::new(body);
    let answer = s3.service.call(http::Request::from_parts(parts, body), crate::harness::peer()).await;
    assert_eq!(answer.status(), 403);
    // Another host than the one that was signed.
    let mut request = s3.get("/bkt/k").build();
    request.headers_mut().insert("host", "other.test".parse().unwrap());
    let (parts, body) = request.into_parts();
    let body = crate::harness::Sent::new(body);
    let answer = s3.service.call(http::Request::from_parts(parts, body), crate::harness::peer()).await;
    assert_eq!(answer.status(), 403);
}

#[tokio::test]
async fn a_presigned_query_stands_for_headers() {
    let s3 = S3::with_bucket().await;
    s3.put("/bkt/k?X-Amz-Meta-Color=blue").body("x").sign(Sign::Query(60)).send(&s3).await.expect(200);
    assert_eq!(s3.head("/bkt/k").send(&s3).await.header("x-amz-meta-color"), Some("blue"));
    s3.put("/bkt/c?x-amz-copy-source=%2Fbkt%2Fk").sign(Sign::Query(60)).send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt/c").send(&s3).await.text(), "x");
    s3.put("/bkt/k?X-Amz-Acl=public-read")
        .sign(Sign::Query(60))
        .send(&s3)
        .await
        .refused(400, "AccessControlListNotSupported");
}

/// The AWS SDK for JavaScript signs the CRC of an empty body into every URL for a PUT.
#[tokio::test]
async fn a_checksum_in_a_presigned_query_is_ignored() {
    let s3 = S3::with_bucket().await;
    let target = "/bkt/k?x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32";
    s3.put(target).body("x").sign(Sign::Query(60)).send(&s3).await.expect(200);
    let kept = s3.head("/bkt/k").header("x-amz-checksum-mode", "ENABLED").send(&s3).await;
    assert_ne!(kept.header("x-amz-checksum-crc32"), Some("AAAAAA=="));
    let upload =
        s3.post("/bkt/u?uploads&x-amz-checksum-algorithm=SHA256").sign(Sign::Query(60)).send(&s3).await.expect(200);
    assert_eq!(upload.header("x-amz-checksum-algorithm"), Some("SHA256"));
}

#[tokio::test]
async fn one_way_of_signing_at_a_time() {
    let s3 = S3::with_bucket().await;
    s3.get("/bkt?X-Amz-Signature=00").send(&s3).await.refused(400, "InvalidArgument");
}

#[tokio::test]
async fn signature_version_2_is_opt_in() {
    let s3 = S3::new().await;
    let refused = s3.get("/").sign(Sign::Version2).send(&s3).await.refused(400, "InvalidRequest");
    assert!(refused.element("Message").unwrap().contains("AWS4-HMAC-SHA256"));
    let s3 = S3::with(|options| options.sigv2 = true).await;
    s3.get("/").sign(Sign::Version2).send(&s3).await.expect(200);
    s3.put("/v2bkt").sign(Sign::Version2).send(&s3).await.expect(200);
    s3.head("/v2bkt/").sign(Sign::Version2).send(&s3).await.expect(200);
    s3.get("/")
        .sign(Sign::Version2)
        .change(|call| call.secret_key = "wrong")
        .send(&s3)
        .await
        .refused(403, "SignatureDoesNotMatch");
    s3.get("/")
        .sign(Sign::Version2)
        .change(|call| call.clock_s = -1000)
        .send(&s3)
        .await
        .refused(403, "RequestTimeTooSkewed");
}

/// As s3cmd writes them, and AWS's examples.
#[tokio::test]
async fn dates_of_version_2_may_have_a_zone_in_digits() {
    let s3 = S3::with(|options| {
        options.sigv2 = true;
        options.domains = vec!["s3.test".into()];
    })
    .await;
    for header in ["date", "x-amz-date"] {
        let sign = Sign::Version2Dated(header, "");
        s3.put("/bkt").sign(sign).send(&s3).await.expect(200);
        s3.put("/bkt/k").body("x").sign(sign).send(&s3).await.expect(200);
        assert_eq!(s3.get("/bkt/k").sign(sign).send(&s3).await.expect(200).text(), "x");
        let wrong = s3.get("/").sign(sign).change(|call| call.secret_key = "wrong").send(&s3).await;
        wrong.refused(403, "SignatureDoesNotMatch");
        let late = s3.get("/").sign(sign).change(|call| call.clock_s = -1000).send(&s3).await;
        late.refused(403, "RequestTimeTooSkewed");
        let unknown = s3.get("/").sign(sign).change(|call| call.access_key = "AKNONE").send(&s3).await;
        unknown.refused(403, "InvalidAccessKeyId");
        let by_host = s3.get("/k").sign(Sign::Version2Dated(header, "/bkt"));
        assert_eq!(by_host.change(|call| call.host = "bkt.s3.test").send(&s3).await.expect(200).text(), "x");
    }
    s3.get("/").sign(Sign::Not).header("authorization", "AWS AK:x").send(&s3).await.refused(403, "AccessDenied");
}

/// What Version 2 does not sign could have been added by anybody on the way: here the tests' signer does not sign any of it.
#[tokio::test]
async fn nothing_unsigned_makes_another_operation_of_a_request_in_version_2() {
    let s3 = S3::with(|options| options.sigv2 = true).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    for (method, target) in [
        ("PUT", "/bkt/k?retention"),
        ("PUT", "/bkt/k?legal-hold"),
        ("GET", "/bkt/k?attributes"),
        ("GET", "/bkt?encryption"),
        ("DELETE", "/bkt?encryption"),
        ("PUT", "/bkt?publicAccessBlock"),
        ("DELETE", "/bkt?ownershipControls"),
        ("GET", "/bkt?policyStatus"),
        ("PUT", "/bkt/k?renameObject"),
    ] {
        let refused = s3.call(method, target).sign(Sign::Version2).send(&s3).await;
        assert!(refused.text().contains("does not sign"), "{method} {target}: {}", refused.text());
        refused.refused(403, "AccessDenied");
    }
    // What it signs, it must have signed.
    s3.put("/bkt/k?acl").sign(Sign::Version2).send(&s3).await.refused(403, "SignatureDoesNotMatch");
    // And what only says how an answer is to look is let through.
    for target in ["/bkt/?list-type=2", "/bkt/?prefix=k&x-id=ListObjects", "/bkt/k?x-id=GetObject"] {
        s3.get(target).sign(Sign::Version2).send(&s3).await.expect(200);
    }
}

/// Sub-resources are signed wherever they stand in the query, and others may stand beside them.
#[tokio::test]
async fn version_2_signs_sub_resources_wherever_they_stand() {
    let s3 = S3::with(|options| options.sigv2 = true).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    // What is signed, and what is asked for.
    for (method, signed, asked, status) in [
        ("GET", "/bkt/?versions", "/bkt/?versions&encoding-type=url", 200),
        ("GET", "/bkt/?versions", "/bkt/?encoding-type=url&versions", 200),
        ("GET", "/bkt/?uploads", "/bkt/?uploads&prefix=k", 200),
        (
            "GET",
            "/bkt/k?response-content-type=a/b&versionId=null",
            "/bkt/k?versionId=null&response-content-type=a/b",
            200,
        ),
        ("GET", "/bkt/?versions", "/bkt/?prefix=k", 403),
        ("GET", "/bkt/k", "/bkt/k?versionId=null&a", 403),
        ("GET", "/bkt/k", "/bkt/k?a&versionId=null", 403),
        ("PUT", "/bkt/k", "/bkt/k?acl&a", 403),
        ("PUT", "/bkt/", "/bkt/?policy&a", 403),
        ("DELETE", "/bkt/", "/bkt/?policy&a", 403),
    ] {
        let call = Call::new(method, "/").sign(Sign::Version2).change(|call| call.path = signed.into());
        let mut request = call.build();
        *request.uri_mut() = asked.parse().unwrap();
        let answer = s3.ask(request).await;
        assert_eq!(answer.status, status, "{method} {asked}: {}", answer.text());
        if status == 403 {
            answer.refused(403, "SignatureDoesNotMatch");
        }
    }
}

/// Beside AWS's two codes, answers to those who are not who they say are the same whatever there is: keys that are out of use are no other than
/// those that never were, and buckets and objects are not told.
#[tokio::test]
async fn who_is_not_known_learns_nothing() {
    let s3 = S3::with_iam().await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let iam = s3.iam.as_ref().unwrap();
    let ask = |action: &'static str, request: serde_json::Value| {
        iam.administer(action, serde_json::from_value(request).unwrap())
    };
    ask("user/create", serde_json::json!({ "name": "ann" })).await.unwrap();
    for key_name in ["DELETED", "DISABLED", "ACTIVE"] {
        let key = serde_json::json!({ "user": "ann", "access_key": key_name, "secret_key": "the-secret" });
        ask("key/create", key).await.unwrap();
        if key_name == "DELETED" {
            ask("key/delete", serde_json::json!({ "access_key": "DELETED" })).await.unwrap();
        }
    }
    let disabled = ask("key/disable", serde_json::json!({ "access_key": "DISABLED" })).await.unwrap();
    assert_eq!((&disabled["user"], &disabled["active"]), (&"ann".into(), &false.into()));
    let shape = |text: &str| {
        let names = text.split('<').skip(1).filter_map(|tag| tag.split(['>', ' ']).next()).map(str::to_owned);
        names.collect::<Vec<_>>()
    };
    let mut shapes = Vec::new();
    for (access_key, secret_key, code) in [
        ("NEVER", "the-secret", "InvalidAccessKeyId"),
        ("DISABLED", "the-secret", "InvalidAccessKeyId"),
        ("DISABLED", "another", "InvalidAccessKeyId"),
        ("DELETED", "the-secret", "InvalidAccessKeyId"),
        ("ACTIVE", "another", "SignatureDoesNotMatch"),
    ] {
        for (method, target) in
            [("GET", "/bkt/k"), ("GET", "/bkt/none"), ("GET", "/none/k"), ("PUT", "/bkt/k"), ("GET", "/none")]
        {
            for sign in [Sign::Header, Sign::Query(60)] {
                let call = s3.call(method, target).sign(sign);
                let call = call.change(|call| (call.access_key, call.secret_key) = (access_key, secret_key));
                let answer = call.send(&s3).await.refused(403, code);
                let text = answer.text();
                assert!(!text.contains("ann") && !text.contains("the-secret"), "{text}");
                shapes.push((code, shape(&text)));
            }
        }
    }
    shapes.dedup();
    // One for each code.
    assert_eq!(shapes.len(), 2, "{shapes:?}");
}

/// A policy sees the date that was verified: no other that a request may say as well, and one in any header that may carry it.
#[tokio::test]
async fn the_age_of_a_signature_is_that_of_its_own_date() {
    let s3 = S3::with(|options| options.sigv2 = true).await;
    s3.put("/bkt").send(&s3).await.expect(200);
    s3.put("/bkt/k").body("x").send(&s3).await.expect(200);
    let young = r#"{"Version":"2012-10-17","Statement":{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bkt/*",
        "Condition":{"NumericLessThan":{"s3:signatureAge":"600000"}}}}"#;
    s3.put("/bkt?policy").body(young).send(&s3).await.expect(204);
    let old = "/bkt/k?X-Amz-Date=20010101T000000Z";
    let signs = [Sign::Version2, Sign::Version2Dated("x-amz-date", ""), Sign::Version2Dated("date", ""), Sign::Header];
    for (target, sign) in [old, "/bkt/k"].into_iter().flat_map(|target| signs.map(|sign| (target, sign))) {
        s3.get(target).sign(sign).send(&s3).await.refused(403, "AccessDenied");
    }
    s3.get("/bkt/k").sign(Sign::Query(3600)).send(&s3).await.refused(403, "AccessDenied");
    s3.get("/bkt/k").change(|call| call.clock_s = -700).send(&s3).await.expect(200);
}

#[tokio::test]
async fn virtual_hosts_name_buckets() {
    let s3 = S3::with(|options| options.domains = vec!["s3.test".into()]).await;
    s3.put("/bkt").change(|call| call.host = "s3.test:9000").send(&s3).await.expect(200);
    s3.put("/k%20x").body("v").change(|call| call.host = "bkt.s3.test:9000").send(&s3).await.expect(200);
    assert_eq!(s3.get("/bkt/k%20x").change(|call| call.host = "s3.test").send(&s3).await.expect(200).text(), "v");
    assert_eq!(
        s3.get("/bkt/k%20x").change(|call| call.host = "localhost:9000").send(&s3).await.expect(200).text(),
        "v"
    );
    let listed = s3.get("/?list-type=2").change(|call| call.host = "BKT.S3.test").send(&s3).await.expect(200);
    assert_eq!(listed.elements("Key"), ["k x"]);
    s3.get("/").change(|call| call.host = "s3.test").send(&s3).await.expect(200);
}
