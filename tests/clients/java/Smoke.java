import java.io.ByteArrayInputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.async.AsyncRequestBody;
import software.amazon.awssdk.core.async.AsyncResponseTransformer;
import software.amazon.awssdk.core.async.BlockingInputStreamAsyncRequestBody;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3AsyncClient;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3ClientBuilder;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.services.s3.model.*;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;
import software.amazon.awssdk.transfer.s3.S3TransferManager;

/** The AWS SDK for Java 2: the cases of ../test_sdks.py, where it is said what is printed. */
public final class Smoke {
    private static final int MIB = 1 << 20;
    private static final URI ENDPOINT = URI.create(System.getenv("S3_ENDPOINT"));
    private static final String PREFIX = System.getenv("S3_BUCKETS");
    private static final List<String> ODD_KEYS = List.of(
            "a b", "a+b", "a&b<c>\"d'", "per%20cent%", "größe/ü", "日本/😀", "new\nline", "tab\tand\rreturn", "dir//double/", "~*()!", "end ");

    private final S3Client s3 = client(System.getenv("AWS_SECRET_ACCESS_KEY"));

    private interface Case {
        void run(String bucket) throws Exception;
    }

    private interface Call {
        void run() throws Exception;
    }

    private static StaticCredentialsProvider credentials(String secret) {
        return StaticCredentialsProvider.create(AwsBasicCredentials.create(System.getenv("AWS_ACCESS_KEY_ID"), secret));
    }

    private static S3Client client(String secret) {
        S3ClientBuilder builder = S3Client.builder().endpointOverride(ENDPOINT).region(Region.US_EAST_1);
        return builder.forcePathStyle(true)
                .credentialsProvider(credentials(secret))
                .httpClientBuilder(UrlConnectionHttpClient.builder())
                .overrideConfiguration(change -> change.retryStrategy(retry -> retry.maxAttempts(1)))
                .build();
    }

    private static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    private static void equal(Object got, Object expected) {
        check(Objects.equals(got, expected), got + " is not " + expected);
    }

    private static <E extends Exception> E refused(Class<E> kind, Call call) throws Exception {
        try {
            call.run();
        } catch (Exception error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw error;
        }
        throw new AssertionError("this should have been refused");
    }

    private static void refused(int status, String code, Call call) throws Exception {
        S3Exception error = refused(S3Exception.class, call);
        equal(error.statusCode(), status);
        equal(error.awsErrorDetails().errorCode(), code);
    }

    private static byte[] content(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }

    private static byte[] digest(String algorithm, byte[] bytes) throws Exception {
        return MessageDigest.getInstance(algorithm).digest(bytes);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    private void put(String bucket, String key, byte[] body) {
        s3.putObject(put -> put.bucket(bucket).key(key), RequestBody.fromBytes(body));
    }

    private byte[] get(String bucket, String key) {
        return s3.getObjectAsBytes(get -> get.bucket(bucket).key(key)).asByteArray();
    }

    private void buckets(String bucket) throws Exception {
        equal(s3.headBucket(head -> head.bucket(bucket)).bucketRegion(), "us-east-1");
        equal(s3.getBucketLocation(get -> get.bucket(bucket)).locationConstraintAsString(), "");
        List<String> names = s3.listBucketsPaginator(list -> list.prefix(PREFIX).maxBuckets(1)).buckets().stream().map(Bucket::name).toList();
        equal(names, List.of(bucket));
        String other = PREFIX + "-short-lived";
        s3.createBucket(create -> create.bucket(other));
        s3.waiter().waitUntilBucketExists(head -> head.bucket(other));
        s3.deleteBucket(delete -> delete.bucket(other));
        refused(NoSuchBucketException.class, () -> s3.headBucket(head -> head.bucket(other)));
    }

    private void objects(String bucket) throws Exception {
        for (Map.Entry<String, Integer> entry : Map.of("empty", 0, "dir/größe a+b %2F", 1000, "m", MIB).entrySet()) {
            byte[] body = content(entry.getValue());
            String key = entry.getKey();
            PutObjectResponse put = s3.putObject(
                    request -> request.bucket(bucket).key(key).contentType("text/x").metadata(Map.of("a", "1")), RequestBody.fromBytes(body));
            equal(put.eTag(), String.format("\"%032x\"", new java.math.BigInteger(1, digest("MD5", body))));
            check(Arrays.equals(get(bucket, key), body), key);
            HeadObjectResponse head = s3.headObject(request -> request.bucket(bucket).key(key));
            equal(List.of(head.contentLength(), head.contentType(), head.metadata(), head.eTag()),
                    List.of((long) body.length, "text/x", Map.of("a", "1"), put.eTag()));
            check(Duration.between(head.lastModified(), Instant.now()).abs().toMinutes() < 10, head.lastModified());
        }
    }

    private void transfers(String bucket) throws Exception {
        byte[] body = content(12 * MIB + 5);
        try (S3AsyncClient async = S3AsyncClient.builder()
                        .endpointOverride(ENDPOINT)
                        .region(Region.US_EAST_1)
                        .forcePathStyle(true)
                        .multipartEnabled(true)
                        .multipartConfiguration(parts -> parts.minimumPartSizeInBytes(5L * MIB).thresholdInBytes(5L * MIB))
                        .build();
                S3TransferManager manager = S3TransferManager.builder().s3Client(async).build()) {
            // A stream whose length nobody knows.
            BlockingInputStreamAsyncRequestBody stream = AsyncRequestBody.forBlockingInputStream(null);
            var upload = manager.upload(request -> request.requestBody(stream).putObjectRequest(put -> put.bucket(bucket).key("large")));
            stream.writeInputStream(new ByteArrayInputStream(body));
            String tag = upload.completionFuture().join().response().eTag();
            check(tag.endsWith("-3\""), tag);
            var got = async.getObject(get -> get.bucket(bucket).key("large"), AsyncResponseTransformer.toBytes()).join();
            check(Arrays.equals(got.asByteArray(), body), "the bytes");
            manager.copy(request -> request.copyObjectRequest(copy ->
                            copy.sourceBucket(bucket).sourceKey("large").destinationBucket(bucket).destinationKey("copy")))
                    .completionFuture().join();
            check(Arrays.equals(get(bucket, "copy"), body), "the copy");
        }
        String upload = s3.createMultipartUpload(create -> create.bucket(bucket).key("left")).uploadId();
        equal(s3.listMultipartUploads(list -> list.bucket(bucket)).uploads().stream().map(MultipartUpload::key).toList(), List.of("left"));
        s3.abortMultipartUpload(abort -> abort.bucket(bucket).key("left").uploadId(upload));
        refused(NoSuchUploadException.class, () -> s3.listParts(list -> list.bucket(bucket).key("left").uploadId(upload)));
    }

    private void ranges(String bucket) throws Exception {
        byte[] body = content(3 * MIB);
        put(bucket, "k", body);
        Map<String, int[]> ranges = Map.of("0-9", new int[] {0, 10}, "-7", new int[] {body.length - 7, body.length}, "1048570-1048590", new int[] {1048570, 1048591});
        ranges.forEach((text, limits) -> {
            byte[] part = s3.getObjectAsBytes(get -> get.bucket(bucket).key("k").range("bytes=" + text)).asByteArray();
            check(Arrays.equals(part, Arrays.copyOfRange(body, limits[0], limits[1])), text);
        });
        refused(416, "InvalidRange", () -> s3.getObject(get -> get.bucket(bucket).key("k").range("bytes=" + body.length + "-")));
    }

    private void listings(String bucket) {
        List<String> keys = Stream.of("a", "b", "c").flatMap(group -> IntStream.range(0, 9).mapToObj(index -> group + "/" + index)).toList();
        keys.forEach(key -> put(bucket, key, new byte[] {1}));
        var pages = s3.listObjectsV2Paginator(list -> list.bucket(bucket).maxKeys(10).fetchOwner(true));
        equal(pages.stream().count(), 3L);
        equal(pages.contents().stream().map(S3Object::key).toList(), keys);
        check(pages.contents().stream().allMatch(item -> item.size() == 1 && !item.owner().id().isEmpty()), "sizes and owners");
        var groups = s3.listObjectsV2Paginator(list -> list.bucket(bucket).maxKeys(2).delimiter("/"));
        equal(groups.commonPrefixes().stream().map(CommonPrefix::prefix).toList(), List.of("a/", "b/", "c/"));
        var old = s3.listObjects(list -> list.bucket(bucket).prefix("b/").marker("b/6"));
        equal(old.contents().stream().map(S3Object::key).toList(), List.of("b/7", "b/8"));
    }

    private void copies(String bucket) {
        String key = "dir/söurce +%";
        byte[] body = content(MIB);
        s3.putObject(put -> put.bucket(bucket).key(key).metadata(Map.of("a", "1")), RequestBody.fromBytes(body));
        s3.copyObject(copy -> copy.sourceBucket(bucket).sourceKey(key).destinationBucket(bucket).destinationKey("same"));
        s3.copyObject(copy -> copy.sourceBucket(bucket).sourceKey(key).destinationBucket(bucket).destinationKey("new")
                .metadataDirective(MetadataDirective.REPLACE).metadata(Map.of("b", "2")));
        equal(s3.headObject(head -> head.bucket(bucket).key("same")).metadata(), Map.of("a", "1"));
        equal(s3.headObject(head -> head.bucket(bucket).key("new")).metadata(), Map.of("b", "2"));
        check(Arrays.equals(get(bucket, "new"), body), "the bytes");
        String upload = s3.createMultipartUpload(create -> create.bucket(bucket).key("part")).uploadId();
        String tag = s3.uploadPartCopy(part -> part.sourceBucket(bucket).sourceKey(key).destinationBucket(bucket).destinationKey("part")
                .uploadId(upload).partNumber(1).copySourceRange("bytes=10-19")).copyPartResult().eTag();
        s3.completeMultipartUpload(complete -> complete.bucket(bucket).key("part").uploadId(upload)
                .multipartUpload(parts -> parts.parts(part -> part.partNumber(1).eTag(tag))));
        check(Arrays.equals(get(bucket, "part"), Arrays.copyOfRange(body, 10, 20)), "the part");
    }

    private List<String> tagsOf(String bucket) {
        return s3.getObjectTagging(get -> get.bucket(bucket).key("k")).tagSet().stream().map(tag -> tag.key() + "=" + tag.value()).toList();
    }

    private void tags(String bucket) throws Exception {
        Tagging own = Tagging.builder().tagSet(Tag.builder().key("a").value("1").build(), Tag.builder().key("b").value("ü +").build()).build();
        s3.putObject(put -> put.bucket(bucket).key("k").tagging(own), RequestBody.fromString("x"));
        equal(tagsOf(bucket), List.of("a=1", "b=ü +"));
        s3.putObjectTagging(put -> put.bucket(bucket).key("k").tagging(tags -> tags.tagSet(tag -> tag.key("größe").value("a b"))));
        equal(tagsOf(bucket), List.of("größe=a b"));
        s3.deleteObjectTagging(delete -> delete.bucket(bucket).key("k"));
        equal(tagsOf(bucket), List.of());
        s3.putBucketTagging(put -> put.bucket(bucket).tagging(tags -> tags.tagSet(tag -> tag.key("project").value("42"))));
        equal(s3.getBucketTagging(get -> get.bucket(bucket)).tagSet().get(0).value(), "42");
        s3.deleteBucketTagging(delete -> delete.bucket(bucket));
        refused(404, "NoSuchTagSet", () -> s3.getBucketTagging(get -> get.bucket(bucket)));
    }

    private void versions(String bucket) throws Exception {
        s3.putBucketVersioning(put -> put.bucket(bucket).versioningConfiguration(kept -> kept.status(BucketVersioningStatus.ENABLED)));
        equal(s3.getBucketVersioning(get -> get.bucket(bucket)).status(), BucketVersioningStatus.ENABLED);
        List<String> ids = new ArrayList<>();
        for (String body : List.of("0", "1")) {
            ids.add(s3.putObject(put -> put.bucket(bucket).key("k"), RequestBody.fromString(body)).versionId());
        }
        DeleteObjectResponse marker = s3.deleteObject(delete -> delete.bucket(bucket).key("k"));
        check(marker.deleteMarker(), marker);
        refused(NoSuchKeyException.class, () -> get(bucket, "k"));
        for (int index = 0; index < ids.size(); index++) {
            String id = ids.get(index);
            equal(s3.getObjectAsBytes(get -> get.bucket(bucket).key("k").versionId(id)).asUtf8String(), String.valueOf(index));
        }
        var listed = s3.listObjectVersions(list -> list.bucket(bucket));
        equal(listed.versions().stream().map(ObjectVersion::versionId).toList(), List.of(ids.get(1), ids.get(0)));
        equal(listed.deleteMarkers().stream().map(DeleteMarkerEntry::versionId).toList(), List.of(marker.versionId()));
        s3.deleteObject(delete -> delete.bucket(bucket).key("k").versionId(marker.versionId()));
        equal(new String(get(bucket, "k"), StandardCharsets.UTF_8), "1");
    }

    private void presigned(String bucket) throws Exception {
        String key = "a b/ü+";
        HttpClient http = HttpClient.newHttpClient();
        try (S3Presigner presigner = S3Presigner.builder().endpointOverride(ENDPOINT).region(Region.US_EAST_1)
                .serviceConfiguration(S3Configuration.builder().pathStyleAccessEnabled(true).build()).build()) {
            URI put = presigner.presignPutObject(sign -> sign.signatureDuration(Duration.ofMinutes(1))
                    .putObjectRequest(request -> request.bucket(bucket).key(key))).url().toURI();
            var sent = http.send(HttpRequest.newBuilder(put).PUT(HttpRequest.BodyPublishers.ofString("presigned")).build(), HttpResponse.BodyHandlers.ofString());
            equal(sent.statusCode() + sent.body(), "200");
            URI get = presigner.presignGetObject(sign -> sign.signatureDuration(Duration.ofMinutes(1))
                    .getObjectRequest(request -> request.bucket(bucket).key(key).responseContentType("text/z"))).url().toURI();
            var got = http.send(HttpRequest.newBuilder(get).build(), HttpResponse.BodyHandlers.ofString());
            equal(List.of(got.statusCode(), got.body(), got.headers().firstValue("content-type").orElse("")), List.of(200, "presigned", "text/z"));
            URI forged = URI.create(get.toString().replace("text%2Fz", "text%2Fhtml"));
            equal(http.send(HttpRequest.newBuilder(forged).build(), HttpResponse.BodyHandlers.ofString()).statusCode(), 403);
        }
    }

    private void conditions(String bucket) throws Exception {
        RequestBody body = RequestBody.fromString("1");
        String tag = s3.putObject(put -> put.bucket(bucket).key("k").ifNoneMatch("*"), body).eTag();
        refused(412, "PreconditionFailed", () -> s3.putObject(put -> put.bucket(bucket).key("k").ifNoneMatch("*"), body));
        refused(412, "PreconditionFailed", () -> s3.putObject(put -> put.bucket(bucket).key("k").ifMatch("\"other\""), body));
        String now = s3.putObject(put -> put.bucket(bucket).key("k").ifMatch(tag), RequestBody.fromString("2")).eTag();
        equal(refused(S3Exception.class, () -> s3.getObject(get -> get.bucket(bucket).key("k").ifNoneMatch(now))).statusCode(), 304);
        equal(refused(S3Exception.class, () -> s3.getObject(get -> get.bucket(bucket).key("k").ifMatch(tag))).statusCode(), 412);
    }

    private void checksums(String bucket) throws Exception {
        byte[] body = content(2 * MIB);
        PutObjectResponse put = s3.putObject(request -> request.bucket(bucket).key("own"), RequestBody.fromBytes(body));
        check(put.checksumCRC32() != null, "the SDK sends a CRC32 of its own accord");
        equal(s3.headObject(head -> head.bucket(bucket).key("own").checksumMode(ChecksumMode.ENABLED)).checksumCRC32(), put.checksumCRC32());
        String sha = base64(digest("SHA-256", body));
        RequestBody stream = RequestBody.fromInputStream(new ByteArrayInputStream(body), body.length);
        equal(s3.putObject(request -> request.bucket(bucket).key("chosen").checksumAlgorithm(ChecksumAlgorithm.SHA256), stream).checksumSHA256(), sha);
        var attributes = s3.getObjectAttributes(get -> get.bucket(bucket).key("chosen").objectAttributes(ObjectAttributes.CHECKSUM, ObjectAttributes.OBJECT_SIZE));
        equal(List.of(attributes.checksum().checksumSHA256(), attributes.objectSize()), List.of(sha, (long) body.length));
        check(Arrays.equals(get(bucket, "chosen"), body), "the bytes");
        refused(400, "BadDigest", () -> s3.putObject(request -> request.bucket(bucket).key("wrong").checksumSHA256(sha), RequestBody.fromString("other")));
    }

    private void deletions(String bucket) {
        ODD_KEYS.forEach(key -> put(bucket, key, key.getBytes(StandardCharsets.UTF_8)));
        equal(s3.listObjectsV2(list -> list.bucket(bucket)).contents().stream().map(S3Object::key).sorted().toList(), ODD_KEYS.stream().sorted().toList());
        ODD_KEYS.forEach(key -> equal(new String(get(bucket, key), StandardCharsets.UTF_8), key));
        List<String> keys = Stream.concat(ODD_KEYS.stream(), Stream.of("missing")).toList();
        List<ObjectIdentifier> objects = keys.stream().map(key -> ObjectIdentifier.builder().key(key).build()).toList();
        DeleteObjectsResponse answer = s3.deleteObjects(delete -> delete.bucket(bucket).delete(list -> list.objects(objects)));
        check(answer.errors().isEmpty(), answer.errors());
        equal(answer.deleted().stream().map(DeletedObject::key).sorted().toList(), keys.stream().sorted().toList());
        equal(s3.listObjectsV2(list -> list.bucket(bucket)).keyCount(), 0);
    }

    private void customerKeys(String bucket) throws Exception {
        byte[] body = content(200_000);
        byte[] key = content(32);
        byte[] other = "b".repeat(32).getBytes(StandardCharsets.UTF_8);
        String md5 = base64(digest("MD5", key));
        PutObjectResponse put = s3.putObject(request -> request.bucket(bucket).key("k").sseCustomerAlgorithm("AES256")
                .sseCustomerKey(base64(key)).sseCustomerKeyMD5(md5), RequestBody.fromBytes(body));
        equal(put.sseCustomerAlgorithm(), "AES256");
        byte[] part = s3.getObjectAsBytes(get -> get.bucket(bucket).key("k").range("bytes=100000-").sseCustomerAlgorithm("AES256")
                .sseCustomerKey(base64(key)).sseCustomerKeyMD5(md5)).asByteArray();
        check(Arrays.equals(part, Arrays.copyOfRange(body, 100_000, body.length)), "the range");
        int plain = refused(S3Exception.class, () -> s3.getObject(get -> get.bucket(bucket).key("k"))).statusCode();
        String otherMd5 = base64(digest("MD5", other));
        int wrong = refused(S3Exception.class, () -> s3.getObject(get -> get.bucket(bucket).key("k").sseCustomerAlgorithm("AES256")
                .sseCustomerKey(base64(other)).sseCustomerKeyMD5(otherMd5))).statusCode();
        check(List.of(400, 403).containsAll(List.of(plain, wrong)), plain + ", " + wrong);
    }

    private void errors(String bucket) throws Exception {
        NoSuchKeyException error = refused(NoSuchKeyException.class, () -> get(bucket, "none"));
        equal(error.statusCode(), 404);
        check(error.requestId() != null, "a request id");
        refused(NoSuchKeyException.class, () -> s3.headObject(head -> head.bucket(bucket).key("none")));
        refused(NoSuchBucketException.class, () -> s3.listObjectsV2(list -> list.bucket(PREFIX + "-none")));
        refused(403, "SignatureDoesNotMatch", () -> client("wrong").listBuckets());
    }

    private void forget(String bucket) {
        var listed = s3.listObjectVersions(list -> list.bucket(bucket));
        listed.versions().forEach(version -> s3.deleteObject(delete -> delete.bucket(bucket).key(version.key()).versionId(version.versionId())));
        listed.deleteMarkers().forEach(marker -> s3.deleteObject(delete -> delete.bucket(bucket).key(marker.key()).versionId(marker.versionId())));
        s3.deleteBucket(delete -> delete.bucket(bucket));
    }

    public static void main(String[] arguments) {
        Smoke smoke = new Smoke();
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("buckets", smoke::buckets);
        cases.put("objects", smoke::objects);
        cases.put("transfers", smoke::transfers);
        cases.put("ranges", smoke::ranges);
        cases.put("listings", smoke::listings);
        cases.put("copies", smoke::copies);
        cases.put("tags", smoke::tags);
        cases.put("versions", smoke::versions);
        cases.put("presigned", smoke::presigned);
        cases.put("conditions", smoke::conditions);
        cases.put("checksums", smoke::checksums);
        cases.put("deletions", smoke::deletions);
        cases.put("customer_keys", smoke::customerKeys);
        cases.put("errors", smoke::errors);
        cases.forEach((name, run) -> {
            String bucket = PREFIX + "-" + name.replace("_", "-");
            try {
                smoke.s3.createBucket(create -> create.bucket(bucket));
                run.run(bucket);
                smoke.forget(bucket);
                System.out.println("ok " + name);
            } catch (Exception | AssertionError error) {
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                System.out.println("failed " + name + ": " + text.toString().replace("\n", " | "));
            }
        });
        System.exit(0);
    }
}
