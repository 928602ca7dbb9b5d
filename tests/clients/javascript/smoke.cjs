// The AWS SDK for JavaScript: the cases of ../test_sdks.py, where it is said what is printed. Node finds the packages by NODE_PATH.
"use strict";

const assert = require("node:assert/strict");
const { createHash, randomBytes } = require("node:crypto");
const { Readable } = require("node:stream");
const S3 = require("@aws-sdk/client-s3");
const { Upload } = require("@aws-sdk/lib-storage");
const { getSignedUrl } = require("@aws-sdk/s3-request-presigner");

const MIB = 1 << 20;
const PREFIX = process.env.S3_BUCKETS;
const ODD_KEYS = ["a b", "a+b", "a&b<c>\"d'", "per%20cent%", "größe/ü", "日本/😀", "new\nline", "tab\tand\rreturn", "dir//double/", "~*()!", "end "];

const settings = { endpoint: process.env.S3_ENDPOINT, region: "us-east-1", forcePathStyle: true, maxAttempts: 1 };
const s3 = new S3.S3(settings);

const read = async (answer) => Buffer.from(await answer.Body.transformToByteArray());

async function refused(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("this should have been refused");
}

async function forget(Bucket) {
  const page = await s3.listObjectVersions({ Bucket });
  for (const { Key, VersionId } of [...(page.Versions ?? []), ...(page.DeleteMarkers ?? [])]) {
    await s3.deleteObject({ Bucket, Key, VersionId });
  }
  await s3.deleteBucket({ Bucket });
}

const CASES = {
  async buckets(Bucket) {
    const head = await s3.headBucket({ Bucket });
    assert.equal(head.BucketRegion, "us-east-1");
    assert.equal((await s3.getBucketLocation({ Bucket })).LocationConstraint, undefined);
    const names = [];
    for await (const page of S3.paginateListBuckets({ client: s3, pageSize: 1 }, { Prefix: PREFIX })) {
      names.push(...page.Buckets.map((bucket) => bucket.Name));
    }
    assert.deepEqual(names, [Bucket]);
    const other = `${PREFIX}-short-lived`;
    await s3.createBucket({ Bucket: other });
    await S3.waitUntilBucketExists({ client: s3, maxWaitTime: 10 }, { Bucket: other });
    await s3.deleteBucket({ Bucket: other });
    assert.ok((await refused(s3.headBucket({ Bucket: other }))) instanceof S3.NotFound);
  },

  async objects(Bucket) {
    for (const [Key, size] of [["empty", 0], ["dir/größe a+b %2F", 1000], ["m", MIB]]) {
      const body = randomBytes(size);
      const put = await s3.putObject({ Bucket, Key, Body: body, ContentType: "text/x", Metadata: { a: "1" } });
      assert.equal(put.ETag, `"${createHash("md5").update(body).digest("hex")}"`);
      const got = await s3.getObject({ Bucket, Key });
      assert.ok((await read(got)).equals(body));
      const head = await s3.headObject({ Bucket, Key });
      for (const answer of [got, head]) {
        assert.deepEqual([answer.ContentLength, answer.ContentType, answer.Metadata, answer.ETag], [size, "text/x", { a: "1" }, put.ETag]);
      }
      assert.ok(Math.abs(head.LastModified - Date.now()) < 600_000);
    }
  },

  async transfers(Bucket) {
    const body = randomBytes(12 * MIB + 5);
    const pieces = Readable.from((function* () { for (let at = 0; at < body.length; at += 100_000) yield body.subarray(at, at + 100_000); })());
    const upload = new Upload({ client: s3, params: { Bucket, Key: "large", Body: pieces }, partSize: 5 * MIB, queueSize: 3 });
    const done = await upload.done();
    assert.match(done.ETag, /-3"$/);
    assert.ok((await read(await s3.getObject({ Bucket, Key: "large" }))).equals(body));
    assert.equal((await s3.headObject({ Bucket, Key: "large", PartNumber: 2 })).PartsCount, 3);
    const left = await s3.createMultipartUpload({ Bucket, Key: "left" });
    assert.deepEqual((await s3.listMultipartUploads({ Bucket })).Uploads.map((upload) => upload.Key), ["left"]);
    await s3.abortMultipartUpload({ Bucket, Key: "left", UploadId: left.UploadId });
    assert.ok((await refused(s3.listParts({ Bucket, Key: "left", UploadId: left.UploadId }))) instanceof S3.NoSuchUpload);
  },

  async ranges(Bucket) {
    const body = randomBytes(3 * MIB);
    await s3.putObject({ Bucket, Key: "k", Body: body });
    for (const [Range, part] of [["bytes=0-9", body.subarray(0, 10)], ["bytes=-7", body.subarray(-7)], ["bytes=1048570-1048590", body.subarray(1048570, 1048591)]]) {
      const got = await s3.getObject({ Bucket, Key: "k", Range });
      assert.equal(got.$metadata.httpStatusCode, 206);
      assert.ok((await read(got)).equals(part), Range);
    }
    const beyond = await refused(s3.getObject({ Bucket, Key: "k", Range: `bytes=${body.length}-` }));
    assert.deepEqual([beyond.name, beyond.$metadata.httpStatusCode], ["InvalidRange", 416]);
  },

  async listings(Bucket) {
    const keys = ["a", "b", "c"].flatMap((group) => Array.from({ length: 9 }, (_, index) => `${group}/${index}`));
    await Promise.all(keys.map((Key) => s3.putObject({ Bucket, Key, Body: "x" })));
    const found = [];
    let pages = 0;
    for await (const page of S3.paginateListObjectsV2({ client: s3, pageSize: 10 }, { Bucket, FetchOwner: true })) {
      pages += 1;
      found.push(...page.Contents.map((item) => item.Key));
      assert.ok(page.Contents.every((item) => item.Owner.ID && item.Size === 1));
    }
    assert.deepEqual([found, pages], [keys, 3]);
    const prefixes = [];
    for await (const page of S3.paginateListObjectsV2({ client: s3, pageSize: 2 }, { Bucket, Delimiter: "/" })) {
      assert.equal(page.Contents, undefined);
      prefixes.push(...page.CommonPrefixes.map((item) => item.Prefix));
    }
    assert.deepEqual(prefixes, ["a/", "b/", "c/"]);
    const old = await s3.listObjects({ Bucket, Prefix: "b/", Marker: "b/6" });
    assert.deepEqual(old.Contents.map((item) => item.Key), ["b/7", "b/8"]);
  },

  async copies(Bucket) {
    const Key = "dir/söurce +%";
    const body = randomBytes(MIB);
    await s3.putObject({ Bucket, Key, Body: body, Metadata: { a: "1" } });
    const CopySource = encodeURI(`${Bucket}/${Key}`).replaceAll("+", "%2B");
    const copied = await s3.copyObject({ Bucket, Key: "same", CopySource });
    assert.ok(copied.CopyObjectResult.LastModified instanceof Date);
    await s3.copyObject({ Bucket, Key: "new", CopySource, MetadataDirective: "REPLACE", Metadata: { b: "2" } });
    for (const [key, metadata] of [["same", { a: "1" }], ["new", { b: "2" }]]) {
      const got = await s3.getObject({ Bucket, Key: key });
      assert.deepEqual(got.Metadata, metadata);
      assert.ok((await read(got)).equals(body));
    }
    const { UploadId } = await s3.createMultipartUpload({ Bucket, Key: "part" });
    const part = await s3.uploadPartCopy({ Bucket, Key: "part", UploadId, PartNumber: 1, CopySource, CopySourceRange: "bytes=10-19" });
    const Parts = [{ PartNumber: 1, ETag: part.CopyPartResult.ETag }];
    await s3.completeMultipartUpload({ Bucket, Key: "part", UploadId, MultipartUpload: { Parts } });
    assert.ok((await read(await s3.getObject({ Bucket, Key: "part" }))).equals(body.subarray(10, 20)));
  },

  async tags(Bucket) {
    const shown = async () => (await s3.getObjectTagging({ Bucket, Key: "k" })).TagSet.map(({ Key, Value }) => [Key, Value]);
    await s3.putObject({ Bucket, Key: "k", Body: "x", Tagging: "a=1&b=%C3%BC%20%2B" });
    assert.deepEqual(await shown(), [["a", "1"], ["b", "ü +"]]);
    await s3.putObjectTagging({ Bucket, Key: "k", Tagging: { TagSet: [{ Key: "größe", Value: "a b" }] } });
    assert.deepEqual(await shown(), [["größe", "a b"]]);
    assert.equal((await s3.headObject({ Bucket, Key: "k" })).TagCount, 1);
    await s3.deleteObjectTagging({ Bucket, Key: "k" });
    assert.deepEqual(await shown(), []);
    await s3.putBucketTagging({ Bucket, Tagging: { TagSet: [{ Key: "project", Value: "42" }] } });
    assert.deepEqual((await s3.getBucketTagging({ Bucket })).TagSet, [{ Key: "project", Value: "42" }]);
    await s3.deleteBucketTagging({ Bucket });
    assert.equal((await refused(s3.getBucketTagging({ Bucket }))).name, "NoSuchTagSet");
  },

  async versions(Bucket) {
    await s3.putBucketVersioning({ Bucket, VersioningConfiguration: { Status: "Enabled" } });
    assert.equal((await s3.getBucketVersioning({ Bucket })).Status, "Enabled");
    const ids = [];
    for (const Body of ["0", "1"]) ids.push((await s3.putObject({ Bucket, Key: "k", Body })).VersionId);
    const marker = await s3.deleteObject({ Bucket, Key: "k" });
    assert.equal(marker.DeleteMarker, true);
    assert.ok((await refused(s3.getObject({ Bucket, Key: "k" }))) instanceof S3.NoSuchKey);
    for (const [index, VersionId] of ids.entries()) {
      assert.equal((await read(await s3.getObject({ Bucket, Key: "k", VersionId }))).toString(), String(index));
    }
    const listed = await s3.listObjectVersions({ Bucket });
    assert.deepEqual(listed.Versions.map((version) => version.VersionId), ids.toReversed());
    assert.deepEqual(listed.DeleteMarkers.map((entry) => [entry.VersionId, entry.IsLatest]), [[marker.VersionId, true]]);
    await s3.deleteObject({ Bucket, Key: "k", VersionId: marker.VersionId });
    assert.equal((await read(await s3.getObject({ Bucket, Key: "k" }))).toString(), "1");
  },

  async presigned(Bucket) {
    const Key = "a b/ü+";
    const put = await getSignedUrl(s3, new S3.PutObjectCommand({ Bucket, Key }), { expiresIn: 60 });
    assert.equal((await fetch(put, { method: "PUT", body: "presigned" })).status, 200);
    const get = await getSignedUrl(s3, new S3.GetObjectCommand({ Bucket, Key, ResponseContentType: "text/z" }), { expiresIn: 60 });
    const answer = await fetch(get);
    assert.deepEqual([answer.status, await answer.text(), answer.headers.get("content-type")], [200, "presigned", "text/z"]);
    assert.equal((await fetch(get.replace("text%2Fz", "text%2Fhtml"))).status, 403);
  },

  async conditions(Bucket) {
    const { ETag } = await s3.putObject({ Bucket, Key: "k", Body: "1", IfNoneMatch: "*" });
    for (const condition of [{ IfNoneMatch: "*" }, { IfMatch: '"other"' }]) {
      const error = await refused(s3.putObject({ Bucket, Key: "k", Body: "2", ...condition }));
      assert.deepEqual([error.name, error.$metadata.httpStatusCode], ["PreconditionFailed", 412]);
    }
    await s3.putObject({ Bucket, Key: "k", Body: "2", IfMatch: ETag });
    const now = (await s3.headObject({ Bucket, Key: "k" })).ETag;
    assert.equal((await refused(s3.getObject({ Bucket, Key: "k", IfNoneMatch: now }))).$metadata.httpStatusCode, 304);
    assert.equal((await refused(s3.getObject({ Bucket, Key: "k", IfMatch: ETag }))).$metadata.httpStatusCode, 412);
  },

  async checksums(Bucket) {
    const body = randomBytes(2 * MIB);
    const put = await s3.putObject({ Bucket, Key: "own", Body: body });
    assert.ok(put.ChecksumCRC32, "the SDK sends a CRC32 of its own accord");
    assert.equal((await s3.headObject({ Bucket, Key: "own", ChecksumMode: "ENABLED" })).ChecksumCRC32, put.ChecksumCRC32);
    // Of a stream the checksum is known at its end: aws-chunked, in a trailer.
    await s3.putObject({ Bucket, Key: "stream", Body: Readable.from([body]), ContentLength: body.length });
    assert.equal((await s3.headObject({ Bucket, Key: "stream", ChecksumMode: "ENABLED" })).ChecksumCRC32, put.ChecksumCRC32);
    assert.ok((await read(await s3.getObject({ Bucket, Key: "stream" }))).equals(body));
    const sha = createHash("sha256").update(body).digest("base64");
    assert.equal((await s3.putObject({ Bucket, Key: "chosen", Body: body, ChecksumAlgorithm: "SHA256" })).ChecksumSHA256, sha);
    const attributes = await s3.getObjectAttributes({ Bucket, Key: "chosen", ObjectAttributes: ["Checksum", "ObjectSize", "ETag"] });
    assert.deepEqual([attributes.Checksum.ChecksumSHA256, attributes.ObjectSize], [sha, body.length]);
    const wrong = await refused(s3.putObject({ Bucket, Key: "wrong", Body: "other", ChecksumSHA256: sha }));
    assert.deepEqual([wrong.name, wrong.$metadata.httpStatusCode], ["BadDigest", 400]);
  },

  async deletions(Bucket) {
    for (const Key of ODD_KEYS) await s3.putObject({ Bucket, Key, Body: Key });
    const listed = (await s3.listObjectsV2({ Bucket, EncodingType: "url" })).Contents.map((item) => decodeURIComponent(item.Key.replaceAll("+", " ")));
    assert.deepEqual(listed.toSorted(), ODD_KEYS.toSorted());
    for (const Key of ODD_KEYS) assert.equal((await read(await s3.getObject({ Bucket, Key }))).toString(), Key);
    const answer = await s3.deleteObjects({ Bucket, Delete: { Objects: [...ODD_KEYS, "missing"].map((Key) => ({ Key })) } });
    assert.deepEqual([answer.Deleted.map((item) => item.Key).toSorted(), answer.Errors], [[...ODD_KEYS, "missing"].toSorted(), undefined]);
    assert.equal((await s3.listObjectsV2({ Bucket })).KeyCount, 0);
  },

  async customer_keys(Bucket) {
    const key = (text) => ({
      SSECustomerAlgorithm: "AES256",
      SSECustomerKey: Buffer.alloc(32, text).toString("base64"),
      SSECustomerKeyMD5: createHash("md5").update(Buffer.alloc(32, text)).digest("base64"),
    });
    const body = randomBytes(200_000);
    const put = await s3.putObject({ Bucket, Key: "k", Body: body, ...key("a") });
    assert.equal(put.SSECustomerAlgorithm, "AES256");
    const got = await s3.getObject({ Bucket, Key: "k", Range: "bytes=100000-", ...key("a") });
    assert.ok((await read(got)).equals(body.subarray(100_000)));
    for (const other of [{}, key("b")]) {
      const error = await refused(s3.getObject({ Bucket, Key: "k", ...other }));
      assert.ok([400, 403].includes(error.$metadata.httpStatusCode), String(error));
    }
  },

  async errors(Bucket) {
    const error = await refused(s3.getObject({ Bucket, Key: "none" }));
    assert.ok(error instanceof S3.NoSuchKey);
    assert.equal(error.$metadata.httpStatusCode, 404);
    assert.ok(error.$metadata.requestId);
    assert.ok((await refused(s3.headObject({ Bucket, Key: "none" }))) instanceof S3.NotFound);
    assert.ok((await refused(s3.listObjectsV2({ Bucket: `${PREFIX}-none` }))) instanceof S3.NoSuchBucket);
    const liar = new S3.S3({ ...settings, credentials: { accessKeyId: process.env.AWS_ACCESS_KEY_ID, secretAccessKey: "wrong" } });
    assert.equal((await refused(liar.listBuckets({}))).name, "SignatureDoesNotMatch");
  },
};

async function main() {
  for (const [name, run] of Object.entries(CASES)) {
    const Bucket = `${PREFIX}-${name.replace("_", "-")}`;
    try {
      await s3.createBucket({ Bucket });
      await run(Bucket);
      await forget(Bucket);
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`failed ${name}: ${String(error.stack ?? error).replaceAll("\n", " | ")}`);
    }
  }
}

main();
