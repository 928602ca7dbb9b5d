//! `gabion bench` against a server: every load does what it says, and notices what is wrong.

use std::{fs, path::Path, process::Stdio, time::Duration};

use aws_sdk_s3::types::{BucketVersioningStatus, ChecksumMode, VersioningConfiguration};
use gabion_tests::{Server, Setup, client_command};
use serde_json::Value;
use tokio::process::Command;

/// The figures of one operation in one phase.
fn figures<'a>(report: &'a Value, phase: &str, operation: &str) -> &'a Value {
    let rows = report["results"].as_array().unwrap().iter();
    let mut found =
        rows.filter(|row| row["phase"].as_str().unwrap_or_default() == phase && row["operation"] == operation);
    found.next().unwrap_or_else(|| panic!("no {operation} in phase {phase:?}: {report}"))
}

fn assert_no_errors(report: &Value) {
    let rows = report["results"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["error_count"] == 0), "{report}");
}

/// Objects of the bucket that the loads work in; none when it was removed.
async fn objects(server: &Server) -> Option<usize> {
    let listed = server.client().list_objects_v2().bucket("gabion-bench").send().await.ok()?;
    Some(listed.contents().len())
}

/// A load, its flags, and how many operations of which kind it must have done in which phase.
type Row<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str, u64)]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_load_runs_and_leaves_nothing_behind() {
    let server = Server::start(Setup::single()).await.unwrap();
    let rows: [Row<'_>; 10] = [
        ("put", &["-n", "50", "--size", "100..20KiB", "--payload", "signed"], &[("", "put", 50)]),
        ("get", &["-n", "50", "--objects", "20", "--size", "0:1,4KiB:3,200KiB:1"], &[("", "get", 50)]),
        ("stat", &["-n", "50", "--objects", "20"], &[("", "stat", 50)]),
        ("delete", &["-n", "50"], &[("", "delete", 50)]),
        (
            "multipart",
            &["-n", "3", "--size", "11MiB", "--part-size", "5MiB"],
            &[("", "multipart", 3), ("", "create-upload", 3), ("", "part", 9), ("", "complete-upload", 3)],
        ),
        ("mdtest-easy", &["-n", "60"], &[("create", "put", 60), ("stat", "stat", 60), ("delete", "delete", 60)]),
        (
            "mdtest-hard",
            &["-n", "60"],
            &[("create", "put", 60), ("stat", "stat", 60), ("read", "get", 60), ("delete", "delete", 60)],
        ),
        ("ior-easy", &["-n", "6"], &[("write", "put", 6), ("read", "get", 6)]),
        ("ior-hard", &["-n", "60"], &[("write", "put", 60), ("read", "get", 60)]),
        (
            "md-workbench",
            &["-n", "40", "--data-sets", "3", "--precreate", "4"],
            &[("precreate", "put", 48), ("benchmark", "put", 40), ("benchmark", "get", 40), ("cleanup", "delete", 48)],
        ),
    ];
    for (operation, flags, expected) in rows {
        let arguments = [&[operation, "-c", "4", "--warmup", "0s"], flags].concat();
        let report = server.bench(&arguments).await.unwrap();
        assert_no_errors(&report);
        for (phase, kind, operations) in expected {
            assert_eq!(
                figures(&report, phase, kind)["operations"],
                *operations,
                "{operation} {phase} {kind}: {report}"
            );
        }
        assert!(report["client_cpu_us_per_op"].as_f64().unwrap() > 0.0);
        assert_eq!(objects(&server).await, None, "{operation} left its bucket");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_sent_in_every_way() {
    let server = Server::start(Setup::single()).await.unwrap();
    for payload in ["unsigned", "signed", "chunked", "trailer"] {
        // What is read was written before, and is compared with what that was to be.
        let sizes = ["--size", "0:1,1:1,4KiB:3,64KiB:1,200001:2", "--payload", payload, "--warmup", "0s", "-c", "3"];
        let get = ["get", "-n", "60", "--objects", "40", "--keep", "--prefix", payload];
        assert_no_errors(&server.bench(&[&get, &sizes[..]].concat()).await.unwrap());
        let uploads = ["multipart", "-n", "2", "-c", "2", "--size", "11MiB", "--part-size", "5MiB", "--warmup", "0s"];
        assert_no_errors(&server.bench(&[&uploads[..], &["--payload", payload]].concat()).await.unwrap());
        let client = server.client();
        let listed = client.list_objects_v2().bucket("gabion-bench").prefix(payload).send().await.unwrap();
        let key = listed.contents()[0].key().unwrap();
        let head = client.head_object().bucket("gabion-bench").key(key).checksum_mode(ChecksumMode::Enabled);
        let head = head.send().await.unwrap();
        assert_eq!(head.content_encoding(), None, "{payload}");
        assert_eq!(head.checksum_crc32().is_some(), payload == "trailer", "{payload}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_are_counted_by_key_and_by_folder() {
    let server = Server::start(Setup::single()).await.unwrap();
    let objects = ["--objects", "120", "--size", "1", "--per-folder", "10", "-c", "2", "--warmup", "0s", "--keep"];
    let keys = server.bench(&[&["list", "-n", "8", "--max-keys", "50"], &objects[..]].concat()).await.unwrap();
    assert_no_errors(&keys);
    // Pages of 50, 50 and 20 keys, for each of two workers.
    let per_page = |report: &Value| {
        let row = figures(report, "", "list");
        row["entries_per_s"].as_f64().unwrap() / row["ops_per_s"].as_f64().unwrap()
    };
    assert!((20.0..50.0).contains(&per_page(&keys)), "{keys}");
    let folders = ["list", "-n", "4", "--delimiter", "/", "--prefix", "bench/", "--no-prepare"];
    let folders = server.bench(&[&folders, &objects[..]].concat()).await.unwrap();
    assert!((per_page(&folders) - 12.0).abs() < 1e-6, "{folders}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_the_work_and_add_up() {
    let server = Server::start(Setup::single()).await.unwrap();
    let share = ["-c", "5", "--processes", "3", "--warmup", "0s"];
    let pid = server.pid().unwrap().to_string();
    let put = server.bench(&[&["put", "-n", "101", "--server-pid", &pid], &share[..]].concat()).await.unwrap();
    assert_no_errors(&put);
    let row = figures(&put, "", "put");
    assert_eq!(row["operations"], 101);
    let seconds: u64 = row["per_second"].as_array().unwrap().iter().map(|second| second["ops"].as_u64().unwrap()).sum();
    let steps = row["latency_distribution"].as_array().unwrap().iter();
    let distribution: u64 = steps.map(|step| step["count"].as_u64().unwrap()).sum();
    assert_eq!((seconds, distribution), (101, 101));
    assert!(put["server_cpu_us_per_op"].is_number(), "{put}");
    // Each phase has what the one before wrote, whichever process wrote it.
    let hard = server.bench(&[&["mdtest-hard", "-n", "47"], &share[..]].concat()).await.unwrap();
    assert_no_errors(&hard);
    for (phase, operation) in [("create", "put"), ("stat", "stat"), ("read", "get"), ("delete", "delete")] {
        assert_eq!(figures(&hard, phase, operation)["operations"], 47, "{phase}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_are_dealt_to_all_endpoints() {
    // Two servers that know nothing of each other tell which of them was asked.
    let (one, other) = (Server::start(Setup::single()).await.unwrap(), Server::start(Setup::single()).await.unwrap());
    one.client().create_bucket().bucket("gabion-bench").send().await.unwrap();
    other.client().create_bucket().bucket("gabion-bench").send().await.unwrap();
    let put = ["put", "-n", "40", "-c", "4", "--size", "1KiB", "--warmup", "0s", "--keep", "--endpoint"];
    let report = one.bench(&[&put[..], &[&other.endpoint()]].concat()).await.unwrap();
    assert_no_errors(&report);
    let found = (objects(&one).await.unwrap(), objects(&other).await.unwrap());
    assert!(found.0 > 0 && found.1 > 0 && found.0 + found.1 == 40, "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_written_so_is_noticed() {
    let server = Server::start(Setup::single()).await.unwrap();
    let common = ["-n", "20", "-c", "2", "--objects", "5", "--warmup", "0s", "--keep"];
    server.bench(&[&["get"], &common[..]].concat()).await.unwrap();
    // Another seed means other content, another size another length; the first is not seen by who does not look.
    let other = ["--no-prepare", "--seed", "2"];
    let error = server.bench(&[&["get"], &common[..], &other].concat()).await.unwrap_err().to_string();
    assert!(error.contains("not read as they were written"), "{error}");
    server.bench(&[&["get", "--no-verify"], &common[..], &other].concat()).await.unwrap();
    let longer = ["--no-prepare", "--size", "4097", "--no-verify"];
    let error = server.bench(&[&["stat"], &common[..], &longer].concat()).await.unwrap_err().to_string();
    assert!(error.contains("not read as they were written"), "{error}");
    let missing = ["get", "-n", "3", "--no-prepare", "--objects", "5", "--prefix", "none/", "--warmup", "0s", "--keep"];
    let error = server.bench(&missing).await.unwrap_err().to_string();
    assert!(error.contains("there is no \"none/0000000000\""), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_comparisons_are_written() {
    let server = Server::start(Setup::single()).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).display().to_string();
    let endpoint = server.endpoint();
    for name in ["a", "b"] {
        let (json, html) = (file(&format!("{name}.json")), file(&format!("{name}.html")));
        let flags =
            ["bench", "put", "-n", "30", "--warmup", "0s", "--endpoint", &endpoint, "--json", &json, "--html", &html];
        let said = server.gabion(&flags).await.unwrap();
        assert!(said.contains("ops/s") && said.contains("CPU per request"), "{said}");
    }
    let (a, b, page) = (file("a.json"), file("b.json"), file("compared.html"));
    let said = server.gabion(&["bench", "--compare", &a, &b, "--html", &page]).await.unwrap();
    assert!(said.contains("too short to tell"), "{said}");
    let written = |path: &str| fs::read_to_string(Path::new(path)).unwrap();
    for page in [file("a.html"), page] {
        assert!(written(&page).starts_with("<!doctype html>") && written(&page).ends_with("</html>\n"));
    }
    let error = server.gabion(&["bench", "put", "-c", "1", "--processes", "2"]).await.unwrap_err().to_string();
    assert!(error.contains("exit status: 2") && error.contains("each needs a worker"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_with_tls_are_trusted_as_asked() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/server/testdata/tls");
    let file = |name: &str| testdata.join(name).display().to_string();
    let (certificate, key) = (file("certificate.pem"), file("key.pem"));
    let setup = Setup::single().flag("--tls-cert", &certificate).flag("--tls-key", &key);
    let server = Server::start(setup).await.unwrap();
    let endpoint = format!("https://{}", server.address());
    let load =
        ["bench", "mixed", "-n", "60", "--objects", "10", "--size", "40KiB", "--warmup", "0s", "--endpoint", &endpoint];
    for trust in [&["--ca", &certificate][..], &["--insecure"]] {
        let said = server.gabion(&[&load, trust].concat()).await.unwrap();
        assert!(said.contains("get") && !said.contains('×'), "{said}");
    }
    // The key's file holds no certificate.
    for (trust, expected) in
        [(&["--ca", &key], "holds no certificate"), (&["--ca", "/nowhere"], "reading the authorities")]
    {
        let error = server.gabion(&[&load[..], &trust[..]].concat()).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floors_are_measured_beside_the_server_and_leave_nothing_behind() {
    let server = Server::start(Setup::single()).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let (targets, endpoint) = (place.path().display().to_string(), server.endpoint());
    let pid = server.pid().unwrap().to_string();
    let arguments = [
        "bench",
        "floor",
        "--targets",
        &targets,
        "--geometry",
        "2+1",
        "--endpoint",
        &endpoint,
        "--server-pid",
        &pid,
        "--touch-memory",
        "1MiB",
        "-c",
        "4",
        "--objects",
        "20",
        // On a drive that other tests keep busy, something is to end within it.
        "--duration",
        "2s",
        "--warmup",
        "0s",
        "--rounds",
        "1",
        "--json",
        "-",
    ];
    let table: Value = serde_json::from_str(&server.gabion(&arguments).await.unwrap()).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let found: Vec<_> =
        rows.iter().map(|row| (row["operation"].as_str().unwrap(), row["layer"].as_str().unwrap())).collect();
    let layers = ["http", "log", "http-log", "files", "http-files", "data-sync", "endpoint"];
    let expected: Vec<_> = layers
        .map(|layer| ("put", layer))
        .into_iter()
        .chain(["http", "http-each", "log", "files", "endpoint"].map(|layer| ("get", layer)))
        .chain(["http", "endpoint"].map(|layer| ("stat", layer)))
        .collect();
    assert_eq!(found, expected);
    for row in rows {
        assert_eq!(row["error_count"], 0, "{row}");
        let floors: Vec<_> =
            row["shares"].as_array().into_iter().flatten().map(|share| share["floor"].as_str().unwrap()).collect();
        let expected: &[&str] = match (row["layer"].as_str(), row["operation"].as_str()) {
            (Some("endpoint"), Some("stat")) => &["http"],
            (Some("endpoint"), Some("get")) => &["http", "http-each", "log", "files"],
            (Some("endpoint"), _) => &["http", "log", "http-log", "files", "http-files"],
            _ => &[],
        };
        assert_eq!(floors, expected, "{row}");
        // Ticks of 10 ms may be none in so short a time.
        let is_server =
            matches!(row["layer"].as_str(), Some("http" | "http-each" | "http-log" | "http-files" | "endpoint"));
        assert_eq!(row["server_cpu_us_per_op"].as_f64().is_some_and(|cpu_us| cpu_us >= 0.0), is_server, "{row}");
    }
    let relaxed = format!("relaxed={endpoint}");
    let arguments = arguments.map(|argument| if argument == endpoint { &relaxed[..] } else { argument });
    let arguments = [&arguments[..], &["--operation", "put"]].concat();
    let table: Value = serde_json::from_str(&server.gabion(&arguments).await.unwrap()).unwrap();
    let rows = table["rows"].as_array().unwrap().iter().filter(|row| row["durability"] == "relaxed");
    let found: Vec<_> = rows
        .inspect(|row| assert!(row["error_count"] == 0 && row["ops_per_s"].as_f64() > Some(0.0), "{row}"))
        .map(|row| row["layer"].as_str().unwrap())
        .collect();
    assert_eq!(found, ["log", "http-log", "files", "http-files", "endpoint"]);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    assert_eq!(objects(&server).await, None);
    let error = server.gabion(&["bench", "floor", "--targets", "/nowhere"]).await.unwrap_err().to_string();
    assert!(error.contains("exit status: 2") && error.contains("/nowhere is no directory"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floors_that_are_stopped_leave_nothing_behind() {
    // One for the log and one for files; one for syncs, and one that the server has which stores.
    for (signal, operation, duration, directories) in [
        ("-INT", "stat", "10m", 2),
        ("-TERM", "stat", "10m", 2),
        ("-INT", "put", "200ms", 4),
        ("-TERM", "put", "200ms", 4),
    ] {
        let place = tempfile::tempdir().unwrap();
        let mut floor = Command::new(Server::program())
            .args(["bench", "floor", "--geometry", "1+0", "-c", "1", "--rounds", "1000"])
            .args(["--operation", operation, "--duration", duration])
            .arg("--targets")
            .arg(place.path())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let made = || fs::read_dir(place.path()).unwrap().count();
        while made() < directories {
            assert!(floor.try_wait().unwrap().is_none(), "it ended by itself");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pid = floor.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        let ended = floor.wait_with_output().await.unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(1) && said.contains("stopped before all was measured"), "{said}");
        assert_eq!(made(), 0, "{signal} {operation}");
    }
}

/// A load as a process of its own, stopped once the bucket has objects besides the one that holds it: how it ended, with what it printed and said.
async fn stopped_load(server: &Server, arguments: &[&str], signal: &str) -> (Option<i32>, String, String) {
    let load = client_command(&[&["bench"], arguments, &["--endpoint", &server.endpoint()]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    while objects(server).await.unwrap_or(0) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // It alone is told: its client processes learn it from it.
    let pid = load.id().unwrap().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    let ended = load.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_that_are_stopped_report_what_they_have_and_leave_nothing_behind() {
    let server = Server::start(Setup::single()).await.unwrap();
    for signal in ["-INT", "-TERM"] {
        for processes in ["1", "3"] {
            let load = ["mdtest-easy", "-d", "1h", "-c", "3", "--processes", processes, "--json", "-"];
            let (code, printed, said) = stopped_load(&server, &load, signal).await;
            assert!(code == Some(1) && said.contains("interrupted"), "{signal} {processes}: {code:?} {said}");
            let report: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(report["interrupted"], true);
            assert!(figures(&report, "create", "put")["operations"].as_u64() > Some(0), "{report}");
            assert_eq!(report["phases"].as_array().unwrap().len(), 1, "no phase follows: {report}");
            assert_eq!(objects(&server).await, None, "{signal} {processes}");

            // Nothing is measured on objects that are not there.
            let load = ["get", "-d", "1h", "-c", "3", "--objects", "10000000", "--processes", processes];
            let (code, printed, said) = stopped_load(&server, &load, signal).await;
            assert!(code == Some(1) && said.contains("stopped before anything was measured"), "{code:?} {said}");
            assert_eq!((&*printed, objects(&server).await), ("", None));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_that_is_not_wholly_prepared_leaves_nothing_behind() {
    let server = Server::start(Setup::single()).await.unwrap();
    // The second endpoint is not there: the first was prepared by then.
    let endpoints = format!("{},http://127.0.0.1:1", server.endpoint());
    let floor = ["bench", "floor", "--operation", "stat", "-c", "1", "--objects", "10", "--endpoint", &endpoints];
    let error = server.gabion(&floor).await.unwrap_err().to_string();
    assert!(error.contains("http://127.0.0.1:1") && error.contains("connection refused"), "{error}");
    assert_eq!(objects(&server).await, None);
    let floor = ["floor", "--operation", "stat", "-c", "1", "--objects", "10000000"];
    let (code, printed, said) = stopped_load(&server, &floor, "-INT").await;
    assert!(code == Some(1) && said.contains("stopped before all was measured"), "{code:?} {said}");
    assert_eq!((&*printed, objects(&server).await), ("", None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_what_was_written_are_removed() {
    let server = Server::start(Setup::single()).await.unwrap();
    let client = server.client();
    client.create_bucket().bucket("gabion-bench").send().await.unwrap();
    let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
    client.put_bucket_versioning().bucket("gabion-bench").versioning_configuration(enabled).send().await.unwrap();
    assert_no_errors(&server.bench(&["mixed", "-n", "300", "--objects", "20", "-c", "2"]).await.unwrap());
    let listed = client.list_object_versions().bucket("gabion-bench").send().await.unwrap();
    assert_eq!((listed.versions().len(), listed.delete_markers().len()), (0, 0));
}
