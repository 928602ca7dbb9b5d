//! Whole runs against the least of a server.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use bytes::Bytes;
use clap::Parser;
use parking_lot::Mutex;

use super::*;
use crate::{
    cli::Program,
    test_server::{Bucket, serve},
};

fn bench(url: &str, words: &str) -> Result<(), BenchError> {
    let common = ["--endpoint", url, "--access-key", "a", "--secret-key", "s", "-c", "2"];
    let warmup = if words.contains("--warmup") { &[][..] } else { &["--warmup", "0s"] };
    let words = ["bench"].into_iter().chain(words.split(' ').map(|word| word.trim_matches('"')));
    run(Program::parse_from(words.chain(common).chain(warmup.iter().copied())).cli)
}

/// The same; the report as well.
fn report(url: &str, words: &str) -> (Result<(), BenchError>, Report) {
    let place = tempfile::tempdir().unwrap();
    let json = place.path().join("report.json");
    let outcome = bench(url, &format!("{words} --json {}", json.display()));
    (outcome, Report::read(&json).unwrap())
}

#[test]
fn no_more_is_done_than_was_asked_for() {
    let (_server, url) = serve(&Arc::default());
    // Of a signed body the hash takes longer than what is left of the warm-up.
    let (outcome, report) = report(&url, "put -n 3 --size 8MiB --payload signed --warmup 4ms");
    outcome.unwrap();
    assert_eq!(report.results[0].operations, 3);
}

#[test]
fn bodies_are_sent_as_is_asked_for() {
    for (payload, content, is_framed, trailer) in [
        ("unsigned", Some("UNSIGNED-PAYLOAD"), false, None),
        ("signed", None, false, None),
        ("chunked", Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), true, None),
        ("trailer", Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"), true, Some("x-amz-checksum-crc32")),
    ] {
        let bucket = Arc::<Mutex<Bucket>>::default();
        let (_server, url) = serve(&bucket);
        bench(&url, &format!("put -n 1 --size 100000 --keep --payload {payload}")).unwrap();
        let bucket = bucket.lock();
        let [[said, length, behind]] = &bucket.contents[..] else { panic!("{:?}", bucket.contents) };
        assert_eq!(said.as_deref().filter(|said| said.len() != 64), content);
        assert_eq!(length.as_deref(), is_framed.then_some("100000"), "{payload}");
        assert_eq!(behind.as_deref(), trailer, "{payload}");
        let body = bucket.objects.values().next().unwrap();
        assert_eq!(body.len() > 100_000, is_framed, "{payload}");
    }
}

#[test]
fn operations_come_at_the_rate_that_was_asked_for() {
    let (_server, url) = serve(&Arc::default());
    let (outcome, paced) = report(&url, "put -d 500ms --rate 40 --warmup 100ms");
    outcome.unwrap();
    // Those that are due until its end, and of the warm-up what was late when it began.
    let begun = paced.results[0].operations + paced.results[0].late_operations;
    assert!((1..=24).contains(&begun), "{begun}");
    assert_eq!(paced.asked.unwrap().rate_per_s, Some(40.0));
    // The last of ten is due nine tenths of a second after the first.
    let (outcome, paced) = report(&url, "put -n 10 --rate 10");
    outcome.unwrap();
    assert!(paced.seconds >= 0.85, "{}", paced.seconds);
}

/// Whoever comes to its turn late is timed from then: a server that takes 50 ms for each of 200 a second is not one that answers within 50 ms.
#[test]
fn what_waits_for_its_turn_is_timed_as_well() {
    let bucket = Arc::new(Mutex::new(Bucket { put_takes: Duration::from_millis(50), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    let (outcome, closed) = report(&url, "put -n 20");
    outcome.unwrap();
    assert!(closed.faults().is_empty());
    let (outcome, paced) = report(&url, "put -n 20 --rate 200");
    outcome.unwrap();
    // Two workers take half a second for what is due within a tenth of one. The first two may begin in time.
    assert!(paced.results[0].latency_us.max >= 400_000.0, "{:?}", paced.results[0].latency_us);
    assert!(paced.phases[0].late_starts >= 18, "{:?}", paced.phases[0]);
    assert!(paced.faults()[0].starts_with("put: nobody was free for "), "{:?}", paced.faults());
}

#[test]
fn requests_of_uploads_that_are_not_counted_are_not_either() {
    let (_server, url) = serve(&Arc::new(Mutex::new(Bucket { takes_parts: true, ..Bucket::default() })));
    // Uploads of the warm-up go on after it.
    let (outcome, report) = report(&url, "multipart -n 3 --size 300 --part-size 1 --warmup 10ms");
    outcome.unwrap();
    let counts = report.results.iter().map(|row| (row.operation.as_str(), row.operations));
    let expected = [("multipart", 3), ("create-upload", 3), ("part", 900), ("complete-upload", 3)];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
}

#[test]
fn uploads_of_which_none_succeeded_are_no_measurement() {
    let (_server, url) = serve(&Arc::default());
    // They are begun, but no part is taken.
    let (outcome, report) = report(&url, "multipart -n 4 --size 1KiB");
    assert!(report.results.iter().any(|row| row.operation == "create-upload" && row.operations > 0));
    assert!(matches!(outcome, Err(BenchError::Failed(error)) if error.to_string() == "no operation succeeded"));
}

#[test]
fn what_was_due_and_never_began_is_told() {
    let bucket = Bucket { put_takes: Duration::from_millis(50), ..Bucket::default() };
    let (_server, url) = serve(&Arc::new(Mutex::new(bucket)));
    // Two workers do no more than forty in a second.
    let (outcome, report) = report(&url, "put -d 500ms --rate 1000");
    outcome.unwrap();
    let phase = &report.phases[0];
    let begun = report.results[0].latency_distribution.iter().map(|step| step.count).sum::<u64>();
    assert!((475..=505).contains(&(phase.missed_starts + begun)), "{phase:?}, {begun} were begun");
    assert!(phase.longest_missed_us > 400_000.0, "{phase:?}");
    assert!(report.text().contains("had not begun when the time was over"), "{}", report.text());
}

#[test]
fn an_endpoint_of_several_that_is_not_there_is_named() {
    let (_server, url) = serve(&Arc::default());
    let (outcome, report) = report(&format!("{url},http://127.0.0.1:1"), "put -d 200ms");
    let error = said(outcome);
    assert!(error.contains("put: no operation succeeded at http://127.0.0.1:1: connection refused: "), "{error}");
    let [alive, dead] = &report.phases[0].endpoints[..] else { panic!("{:?}", report.phases) };
    assert!(alive.succeeded > 0 && alive.failed == 0 && dead.succeeded == 0 && dead.failed > 0);
}

#[test]
fn an_endpoint_that_is_not_there_takes_no_turns_of_others() {
    let bucket = Bucket { put_takes: Duration::from_millis(20), ..Bucket::default() };
    let (_server, url) = serve(&Arc::new(Mutex::new(bucket)));
    let (_, report) = report(&format!("{url},http://127.0.0.1:1"), "put -d 2s --rate 80");
    let [alive, dead] = &report.phases[0].endpoints[..] else { panic!("{:?}", report.phases) };
    // It fails in less time than the other takes, and is free again earlier.
    assert!(alive.succeeded > 0 && dead.failed <= 81, "{alive:?} {dead:?}");
}

#[test]
fn an_endpoint_that_hangs_from_the_warm_up_on_does_nothing_right() {
    let bucket = Arc::new(Mutex::new(Bucket { put_takes: Duration::from_secs(60), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    let load = "put -d 100ms --warmup 500ms";
    let (outcome, hung) = report(&url, &format!("{load} --timeout 700ms"));
    assert_eq!(said(outcome), "no operation succeeded");
    assert_eq!(hung.results[0].errors["timeout"], 2);
    // One that is only slow did nothing wrong.
    bucket.lock().put_takes = Duration::from_millis(700);
    let (outcome, slow) = report(&url, load);
    assert_eq!(said(outcome), "no operation ended within the measurement; give a longer --duration");
    assert_eq!((slow.results[0].outlasted_operations, slow.results[0].error_count), (2, 0));
    assert!(slow.text().contains("2 × under way from before the start until after the end"), "{}", slow.text());
    let (outcome, short) = report(&url, "put -d 100ms --warmup 0s");
    assert_eq!(said(outcome), "no operation ended within the measurement; give a longer --duration");
    assert_eq!((short.results[0].operations, short.results[0].error_count), (0, 0));
}

#[test]
fn only_what_the_run_wrote_is_removed() {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let (_server, url) = serve(&bucket);
    let put = |key: &str| drop(bucket.lock().objects.insert(key.to_owned(), Bytes::from_static(b"mine")));
    ["precious", "bench/precious", "bench/0000000000x", "w00000/0000000000x"].into_iter().for_each(put);
    let keys = || bucket.lock().objects.keys().cloned().collect::<Vec<_>>();
    let before = keys();
    for prefix in ["", "bench/", "bench"] {
        for load in ["put -n 20", "get -n 20 --objects 9", "mixed -n 50 --objects 9", "mdtest-hard -n 9"] {
            bench(&url, &format!("{load} --prefix \"{prefix}\"")).unwrap();
            assert_eq!(keys(), before, "{load} below {prefix:?}");
        }
    }
    bench(&url, "get -n 5 --objects 9 --keep").unwrap();
    let kept = keys();
    assert_eq!(kept.len(), before.len() + 9);
    bench(&url, "get -n 5 --objects 9 --no-prepare").unwrap();
    assert_eq!(keys(), kept, "an earlier run's objects are not this one's to remove");
    // What is measured is new each time, also where it stays.
    for runs in 1..=3 {
        bench(&url, "put -n 20 --warmup 0s --keep").unwrap();
        assert_eq!(keys().len(), kept.len() + runs * 20);
    }
}

#[test]
fn uploads_that_were_left_are_given_up() {
    let theirs = "bench/another/upload".to_owned();
    // A worker tries five times to give one up.
    let bucket = Bucket { stubborn: 11, uploads: BTreeSet::from([theirs.clone()]), ..Bucket::default() };
    let bucket = Arc::new(Mutex::new(bucket));
    let (_server, url) = serve(&bucket);
    // Uploads begin, but none is completed.
    let _ = bench(&url, "multipart -n 4 --size 1KiB");
    assert_eq!(bucket.lock().stubborn, 0);
    assert_eq!(bucket.lock().uploads, BTreeSet::from([theirs]));
}

/// Uploads in progress are no objects, and a bucket without objects may be deleted by the run that made it.
#[test]
fn a_bucket_is_held_while_a_run_uses_it() {
    for (flags, removed) in [("", 1), (" --keep", 0)] {
        let bucket = Bucket { takes_parts: true, refused: Some(("HEAD ", 404, "")), vanishes: 2, ..Bucket::default() };
        let bucket = Arc::new(Mutex::new(bucket));
        let (_server, url) = serve(&bucket);
        bench(&url, &format!("multipart -n 2 --size 1KiB{flags}")).unwrap();
        let bucket = bucket.lock();
        // It is made again as often as it vanishes.
        assert_eq!((bucket.created.len(), bucket.unheld, bucket.removed), (3, 0, removed), "{flags}");
        assert!(!bucket.objects.keys().any(|key| key.ends_with(".lease")), "{:?}", bucket.objects);
    }
}

#[test]
fn a_bucket_in_which_others_have_uploads_is_left() {
    let theirs = BTreeSet::from(["theirs".to_owned()]);
    let bucket = Bucket { uploads: theirs, refused: Some(("HEAD ", 404, "")), ..Bucket::default() };
    let bucket = Arc::new(Mutex::new(bucket));
    let (_server, url) = serve(&bucket);
    bench(&url, "put -n 3").unwrap();
    assert_eq!(bucket.lock().removed, 0);
    assert!(bucket.lock().objects.is_empty());
    bucket.lock().uploads.clear();
    bench(&url, "put -n 3").unwrap();
    assert_eq!(bucket.lock().removed, 1);
}

#[test]
fn threads_are_those_that_have_workers() {
    for (flags, expected) in [
        (["-c", "2", "--threads", "8", "--processes", "1"], 2),
        (["-c", "64", "--threads", "3", "--processes", "2"], 6),
        (["-c", "5", "--threads", "2", "--processes", "3"], 5),
        (["-c", "4", "--threads", "0", "--processes", "2"], 2),
    ] {
        assert_eq!(used_threads(&Settings::for_tests(Operation::Put, &flags)), expected, "{flags:?}");
    }
}

#[test]
fn runs_have_names_of_their_own_and_the_same_content() {
    let load = || Load::new(&Settings { run: run_folder(), ..Settings::for_tests(Operation::Put, &[]) }, Share::WHOLE);
    let (one, two) = (load(), load());
    assert_ne!(one.run, two.run);
    let content = |load: &Load| {
        let key = format!("{}{}w00000/0000000000", load.prefix, load.run);
        let mut content = load.content_of(&key);
        content.next_slice().to_vec()
    };
    assert_eq!(content(&one), content(&two));
}

/// What a run that failed says.
fn said(outcome: Result<(), BenchError>) -> String {
    match outcome {
        Err(BenchError::Failed(error)) => format!("{error:#}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_can_not_for_the_moment_ends_neither_preparation_nor_removal() {
    let bucket = Arc::new(Mutex::new(Bucket { unsteady: true, ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    bench(&url, "get -n 5 --objects 3").unwrap();
    assert!(bucket.lock().objects.is_empty());
}

#[test]
fn what_is_wrong_with_the_command_line_is_told_as_that() {
    for (url, words, expected) in [
        ("ftp://localhost", "put", "must begin with http:// or https://"),
        ("http://localhost:0", "put", "no valid port"),
        ("https://localhost", "put --ca /nowhere/ca.pem", "/nowhere/ca.pem"),
    ] {
        let outcome = bench(url, words);
        assert!(matches!(&outcome, Err(BenchError::Usage(why)) if why.contains(expected)), "{url} {outcome:?}");
    }
}

#[test]
fn nothing_is_measured_for_a_file_that_can_not_be_written() {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let (_server, url) = serve(&bucket);
    for flag in ["--json", "--html"] {
        let error = said(bench(&url, &format!("put -n 3 {flag} /nowhere/report")));
        assert!(error.contains("/nowhere/report"), "{error}");
    }
    assert_eq!(bucket.lock().requests, 0);
}

#[test]
fn what_stays_is_told_beside_what_failed_before() {
    let bucket = Arc::new(Mutex::new(Bucket { refused: Some(("POST ", 403, "AccessDenied")), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    // Neither can uploads be begun, nor objects be deleted.
    let error = said(bench(&url, "multipart -n 4 --size 1KiB"));
    assert_eq!(error, "no operation succeeded");
    let error = said(bench(&url, "put -n 3"));
    assert!(error.contains("in the bucket \"gabion-bench\" stays: 403 AccessDenied"), "{error}");
    bucket.lock().refused = Some(("GET ", 403, "AccessDenied"));
    let error = said(bench(&url, "get -n 3 --objects 3"));
    let lines: Vec<_> = error.lines().collect();
    assert!(lines.len() == 2 && lines[0] == "no operation succeeded", "{error}");
    assert!(lines[1].contains("what lies below \"bench/") && lines[1].contains("stays"), "{error}");
}

#[test]
fn objects_that_stay_are_not_deleted_for_ever() {
    let (_server, url) = serve(&Arc::new(Mutex::new(Bucket { keeps_objects: true, ..Bucket::default() })));
    let error = said(bench(&url, "put -n 3"));
    assert!(error.ends_with("stays: objects are listed on that were deleted"), "{error}");
}

#[test]
fn keys_that_are_refused_are_said_to_be() {
    let bucket = Arc::new(Mutex::new(Bucket { refused: Some(("HEAD ", 403, "")), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    let error = said(bench(&url, "put -n 3"));
    assert!(error.contains("secret key is wrong, or its owner has no right to this bucket: 403"), "{error}");
    // Servers answer so to who signs for another region.
    bucket.lock().refused = Some(("HEAD ", 400, ""));
    let error = said(bench(&url, "put -n 3"));
    assert!(error.contains("--region may be none of the server's") && error.ends_with(": 400"), "{error}");
    // And to who names what is no bucket.
    let error = said(bench(&url, "put -n 3 --bucket ab"));
    assert!(error.contains(": this may be no bucket name: it must have 3") && error.ends_with(": 400"), "{error}");
}

#[test]
fn temporary_credentials_send_their_token_with_each_request() {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let (_server, url) = serve(&bucket);
    let tokens = || std::mem::take(&mut bucket.lock().tokens);
    bench(&url, "mixed -n 30 --objects 9").unwrap();
    assert_eq!(tokens(), BTreeSet::from([(None, false)]));
    for load in ["mixed -n 30 --objects 9", "multipart -n 1 --size 1KiB"] {
        let _ = bench(&url, &format!("{load} --session-token a/b+c=="));
        assert_eq!(tokens(), BTreeSet::from([(Some("a/b+c==".to_owned()), true)]), "{load}");
    }
}

#[test]
fn a_bucket_is_created_in_the_region_that_is_signed_for() {
    let bucket = Arc::new(Mutex::new(Bucket { refused: Some(("HEAD ", 404, "")), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    for region in ["us-east-1", "eu-lab"] {
        bench(&url, &format!("put -n 1 --region {region}")).unwrap();
    }
    let created: Vec<_> = bucket.lock().created.iter().map(|body| String::from_utf8(body.to_vec()).unwrap()).collect();
    assert_eq!(created[0], "");
    assert!(created[1].contains("<LocationConstraint>eu-lab</LocationConstraint>"), "{created:?}");
}

#[test]
fn a_head_without_a_length_verifies_nothing() {
    let (_server, url) = serve(&Arc::new(Mutex::new(Bucket { hides_lengths: true, ..Bucket::default() })));
    let (outcome, report) = report(&url, "stat -n 4 --objects 3");
    assert!(said(outcome).contains("not read as they were written"));
    assert_eq!(report.results[0].error_count, 4);
    bench(&url, "stat -n 4 --objects 3 --no-verify").unwrap();
}

#[test]
fn what_another_endpoint_does_not_answer_is_removed() {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let (_server, url) = serve(&bucket);
    bucket.lock().objects.insert("bench/run/1".to_owned(), Bytes::new());
    let settings = Settings::for_tests(Operation::Put, &["--access-key", "a", "--secret-key", "s"]);
    // Nobody listens at the first.
    let endpoints = ["http://127.0.0.1:1".to_owned(), url];
    let factory = Factory::new(&settings.load.access, &endpoints, "b").unwrap();
    let left = Leftovers {
        factory: &factory,
        prefix: "bench/",
        run: "run/",
        lease: None,
        keeps: false,
        uploads: true,
        pending: false,
        objects_max: None,
        created: false,
    };
    left.remove().unwrap();
    assert!(bucket.lock().objects.is_empty());
    // Another run has removed the bucket: there is nothing left to be done.
    bucket.lock().refused = Some(("GET ", 404, "NoSuchBucket"));
    left.remove().unwrap();
}

#[test]
fn what_is_written_when_nobody_waits_for_it_any_more_is_removed_as_well() {
    let (appears_late, put_takes) = (true, Duration::from_secs(60));
    let bucket = Arc::new(Mutex::new(Bucket { appears_late, put_takes, ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    let error = said(bench(&url, "put -n 2 --timeout 100ms"));
    assert_eq!(error, "no operation succeeded");
    let bucket = bucket.lock();
    assert!(!bucket.appears_late && bucket.objects.is_empty());
}

#[test]
fn versions_are_removed_as_well() {
    let theirs = BTreeSet::from([("bench/theirs".to_owned(), 1)]);
    let bucket = Arc::new(Mutex::new(Bucket { versions: Some(theirs.clone()), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    bench(&url, "put -n 20").unwrap();
    assert_eq!(bucket.lock().versions, Some(theirs));
}

#[test]
fn a_listing_without_the_objects_that_there_are_is_an_error() {
    let (_server, url) = serve(&Arc::default());
    bench(&url, "list -n 4 --objects 7").unwrap();
    // The server lists seven and says that there are no more.
    for words in ["list -n 4 --objects 8", "list -n 4 --no-prepare --prefix none/"] {
        let (outcome, report) = report(&url, words);
        assert_eq!(said(outcome), "no operation succeeded");
        assert_eq!(report.results[0].errors["listing without all keys"], 4);
    }
}

#[test]
fn a_page_that_comes_again_is_no_progress() {
    let bucket = Arc::new(Mutex::new(Bucket { turns_in_circles: true, ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    // Nor is one of folders.
    for words in ["list -n 6 --objects 7", "list -n 6 --objects 7 --per-folder 1 --delimiter /"] {
        let (outcome, report) = report(&url, words);
        outcome.unwrap();
        let errors = &report.results[0].errors;
        assert!(errors.contains_key("a listing that is not in order") && errors.len() == 1, "{words}: {errors:?}");
    }
}

/// A server may answer a deletion well and keep the object: what removes all of them at the end finds it.
#[test]
fn a_deletion_that_deletes_nothing_is_told() {
    for (versions, expected) in [(None, 9), (Some(BTreeSet::new()), 9)] {
        let bucket = Arc::new(Mutex::new(Bucket { forgets_deletions: true, versions, ..Bucket::default() }));
        let (_server, url) = serve(&bucket);
        let error = said(bench(&url, "delete --objects 9"));
        assert_eq!(
            error,
            format!("objects that were there at the end although their deletion had succeeded: {expected}")
        );
        assert!(bucket.lock().objects.is_empty());
    }
    for load in
        ["delete --objects 9 -n 4", "mixed -n 200 --objects 9", "mdtest-hard -n 20", "md-workbench -n 20 --data-sets 2"]
    {
        let (_server, url) =
            serve(&Arc::new(Mutex::new(Bucket { versions: Some(BTreeSet::new()), ..Bucket::default() })));
        bench(&url, load).unwrap();
    }
}

#[test]
fn objects_that_may_not_be_deleted_keep_no_others_from_it() {
    let bucket = Arc::new(Mutex::new(Bucket { held: Some("3"), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    let error = said(bench(&url, "put -n 60"));
    assert!(error.ends_with("in the bucket \"gabion-bench\" stays: 200 AccessDenied"), "{error}");
    let bucket = bucket.lock();
    assert!(!bucket.objects.is_empty() && bucket.objects.keys().all(|key| key.ends_with('3')), "{:?}", bucket.objects);
}

#[test]
fn a_page_has_what_was_asked_for_in_order() {
    let folder = "<CommonPrefixes><Prefix>PREFIX~/</Prefix></CommonPrefixes>";
    for (lists_first, expected) in [
        ("<Key>PREFIX!</Key>", None),
        ("<Key>PREFIX&#33;</Key>", None),
        // Keys and folders are in order by themselves.
        (folder, None),
        ("<Key>PREFIX~</Key>", Some("a listing that is not in order")),
        ("<Key>PREFIX&#x7e;</Key>", Some("a listing that is not in order")),
        ("<Key>PREFIX!</Key><Key>PREFIX!</Key>", Some("a listing that is not in order")),
        ("<Key>!PREFIX</Key>", Some("a listing with what was not asked for")),
        ("<CommonPrefixes><Prefix>!</Prefix></CommonPrefixes>", Some("a listing with what was not asked for")),
    ] {
        let (_server, url) = serve(&Arc::new(Mutex::new(Bucket { lists_first, ..Bucket::default() })));
        let (_, report) = report(&url, "list -n 4 --objects 3 --delimiter /");
        let kinds: Vec<_> = report.results[0].errors.keys().map(String::as_str).collect();
        assert_eq!(kinds, expected.as_slice(), "{lists_first}");
    }
}

#[test]
fn who_may_not_list_uploads_removes_objects_all_the_same() {
    let bucket = Bucket { takes_parts: true, refused_query: Some(("uploads=", 403)), ..Bucket::default() };
    let bucket = Arc::new(Mutex::new(bucket));
    let (_server, url) = serve(&bucket);
    let error = said(bench(&url, "multipart -n 4 --size 1KiB"));
    assert!(error.contains("stays: 403"), "{error}");
    assert!(bucket.lock().objects.is_empty());
}

#[test]
fn what_is_not_there_is_not_measured() {
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let (_server, url) = serve(&bucket);
    // What a put kept lies elsewhere.
    bench(&url, "put -n 20 --keep").unwrap();
    // Deletions of nothing succeed.
    for load in ["delete", "get", "stat", "mixed"] {
        let error = said(bench(&url, &format!("{load} --no-prepare --objects 9")));
        assert!(error.contains("there is no \"bench/0000000000\"") && error.contains("--objects"), "{error}");
    }
    bench(&url, "get -n 5 --objects 9 --keep").unwrap();
    let error = said(bench(&url, "delete --no-prepare --objects 10"));
    assert!(error.contains("there is no \"bench/0000000009\""), "{error}");
    let before = bucket.lock().deleted;
    bench(&url, "delete --no-prepare --objects 9").unwrap();
    let (deleted, missed) = {
        let bucket = bucket.lock();
        (bucket.deleted - before, bucket.missed)
    };
    assert_eq!((deleted, missed), (9, 0));
    // Nor is a bucket made to be read from.
    bucket.lock().refused = Some(("HEAD ", 404, ""));
    for load in ["get", "stat", "list", "delete", "mixed"] {
        let error = said(bench(&url, &format!("{load} --no-prepare")));
        assert!(error.contains("there is no bucket \"gabion-bench\""), "{load}: {error}");
    }
    assert_eq!(bucket.lock().created.len(), 0);
}

#[test]
fn what_a_server_sends_as_a_code_is_not_shown_whatever_it_is() {
    let codes = ["\u{1b}[2J", "a b", "<b>"].map(|code| (code, ""));
    for (code, shown) in [("Slow.Down_1-2", " Slow.Down_1-2")].into_iter().chain(codes) {
        let bucket = Arc::new(Mutex::new(Bucket { refused: Some(("GET bench", 418, code)), ..Bucket::default() }));
        let (_server, url) = serve(&bucket);
        let (_, report) = report(&url, "get -n 2 --objects 1");
        let kinds: Vec<_> = report.results[0].errors.keys().cloned().collect();
        assert_eq!(kinds, [format!("418{shown}")]);
    }
}

#[test]
fn a_server_that_dies_ends_a_phase() {
    let bucket = Arc::new(Mutex::new(Bucket { lives_for: Some(2001), ..Bucket::default() }));
    let (_server, url) = serve(&bucket);
    let (outcome, report) = report(&url, "ior-hard -n 2000 --size 1");
    let error = said(outcome);
    let expected = [
        "read: 2 workers gave up before all was done, after too many failures in a row",
        "read: no operation succeeded",
    ];
    assert_eq!(error.lines().take(2).collect::<Vec<_>>(), expected);
    assert_eq!(report.phases.iter().map(|phase| phase.given_up).collect::<Vec<_>>(), [0, 2]);
    assert!(report.text().contains("read: 2 workers gave up"));
}

/// Says to a test that it runs in a process of its own, in which it may stop what others would not have stopped.
const ALONE: &str = "GABION_BENCH_TEST_ALONE";

/// A process that runs the test `name` of this module alone.
fn alone(name: &str) -> Command {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", &format!("driver::tests::{name}"), "--nocapture"]).env(ALONE, "1");
    test.stdout(Stdio::piped()).stderr(Stdio::piped());
    test
}

/// A server that hangs is not waited for when the run is stopped, once or twice: what was measured is told.
#[test]
fn a_run_against_a_server_that_hangs_ends_when_it_is_stopped() {
    if std::env::var_os(ALONE).is_some() {
        let bucket = Arc::new(Mutex::new(Bucket { hangs_after: Some(20), ..Bucket::default() }));
        let (_server, url) = serve(&bucket);
        // What was written can not be removed either.
        let error = said(bench(&url, "put -d 1h --timeout 10m"));
        panic!("{error}");
    }
    for (signals, code, most) in [(1, 101, Duration::from_secs(40)), (2, 130, Duration::from_secs(5))] {
        let run = alone("a_run_against_a_server_that_hangs_ends_when_it_is_stopped").spawn().unwrap();
        let begin = Stamp::now();
        let pid = run.id().to_string();
        // By then all is hanging.
        pause(Duration::from_secs(2));
        for _ in 0..signals {
            assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
            pause(Duration::from_millis(200));
        }
        let ended = run.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, said) = (text(&ended.stdout), text(&ended.stderr));
        assert_eq!(ended.status.code(), Some(code), "{printed}\n{said}");
        assert!(Stamp::now().since(begin) < most + Duration::from_secs(3), "{printed}\n{said}");
        assert!(printed.contains("put: 2 operations were under way when the run was stopped"), "{printed}\n{said}");
        assert!(said.contains("interrupted: figures are of what was measured until then"), "{printed}\n{said}");
        assert_eq!(said.contains("stays: timeout"), signals == 1, "{said}");
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
