//! What an operator asks a running server.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use aws_sdk_s3::primitives::ByteStream;
use gabion_tests::{Content, Server, Setup, bytes_of};
use tokio::process::Command;
use tokio::time::{Duration, Instant, sleep};

use crate::BUCKET;
use crate::faults::files::{Place, flip, shard_files};

/// Longest wait for shards to be rebuilt or moved.
const PATIENCE: Duration = Duration::from_secs(120);

async fn gabion(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(Server::program()).args(arguments).env_remove("GABION_STATE").output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
}

async fn status(admin: &str, arguments: &[&str]) -> (Option<i32>, String) {
    gabion(&[&["status", "--admin", admin], arguments].concat()).await
}

/// Runs `gabion target` against `server`.
async fn target(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let state = server.state().display().to_string();
    gabion(&[&["target"], arguments, &["--admin", server.admin(), "--state", &state]].concat()).await
}

/// Waits until `/status` is as wanted.
async fn wait_until(server: &Server, what: &str, is_so: impl Fn(&serde_json::Value, Option<i32>) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (code, text) = status(server.admin(), &["--json"]).await;
        let json = text.rsplit_once("gabion:").map_or(text.as_str(), |(json, _)| json);
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        if is_so(&json["store"]["log"], code) {
            return;
        }
        assert!(Instant::now() < end, "{what} did not come: {json:#}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// What the server has open in a directory.
fn held_in(server: &Server, directory: &str) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", server.pid().unwrap())).unwrap();
    // One may be closed before it is looked at.
    let paths = descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(directory)).collect()
}

/// Whether every sealed segment has all its shards.
fn is_whole(log: &serde_json::Value) -> bool {
    let lacking = log["redundancy"].as_array().unwrap().iter().skip(1);
    lacking.map(|segments| segments.as_u64().unwrap()).sum::<u64>() == 0
}

#[tokio::test]
async fn status_tells_whether_all_is_well() {
    let mut server = Server::start(Setup::six()).await.unwrap();
    let admin = server.admin().to_owned();
    let (code, text) = status(&admin, &[]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("6 of 6 online") && text.contains("geometry 4+2"), "{text}");
    server.kill().await;
    let (code, text) = status(&admin, &[]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("can not be reached") && text.contains("--admin-listen"), "{text}");

    fs::remove_dir_all(&server.targets()[3]).unwrap();
    server.spawn_degraded().await.unwrap();
    let admin = server.admin().to_owned();
    let (code, text) = status(&admin, &[]).await;
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("5 of 6 online") && text.contains("docs/operations/a-drive-died.md"), "{text}");
    let (code, text) = status(&admin, &["--json"]).await;
    assert_eq!(code, Some(5), "{text}");
    let json = text.rsplit_once("gabion:").map_or(text.as_str(), |(json, _)| json);
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["store"]["log"]["targets"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn a_dead_target_is_replaced_and_another_is_drained_while_the_server_serves() {
    const OBJECTS: u64 = 12;
    let mut server = Server::start(Setup::six()).await.unwrap();
    let client = server.client();
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    let content = |number: u64| Content::new(number, if number.is_multiple_of(2) { 5000 } else { 3_000_000 });
    for number in 0..OBJECTS {
        let body = ByteStream::from(content(number).bytes());
        client.put_object().bucket(BUCKET).key(number.to_string()).body(body).send().await.unwrap();
    }
    // Seals the segments, so that there is something to rebuild.
    server.crash().await.unwrap();
    let spare = server.state().parent().unwrap().to_owned();
    let [replacement, seventh] = ["replacement", "seventh"].map(|name| spare.join(name).display().to_string());

    let dead = server.targets()[2].clone();
    server.kill().await;
    fs::remove_dir_all(&dead).unwrap();
    server.spawn_degraded().await.unwrap();
    let dead = dead.display().to_string();

    let (code, text) = target(&server, &["replace", &dead, &replacement]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is no directory"), "{text}");
    fs::create_dir(&replacement).unwrap();
    fs::create_dir(&seventh).unwrap();
    let (code, text) = target(&server, &["add", &spare.display().to_string()]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is not empty, it holds"), "{text}");
    let (code, text) = gabion(&["target", "replace", &dead, &replacement, "--admin", server.admin()]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("admin token"), "{text}");
    let (code, text) = target(&server, &["replace", &dead, &replacement, "--dry-run"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("would be done"), "{text}");
    assert_eq!(
        fs::read_dir(&replacement)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name() != "gabion.lock")
            .count(),
        0
    );
    let (code, text) = target(&server, &["replace", &dead, &replacement]).await;
    assert_eq!(code, Some(0), "{text}");
    wait_until(&server, "the rebuilt target", |log, _| is_whole(log)).await;

    let (code, text) = target(&server, &["drain", &server.targets()[0].display().to_string()]).await;
    assert_eq!(code, Some(1), "there would be too few targets: {text}");
    let (code, text) = target(&server, &["add", &seventh, "--label", "spare"]).await;
    assert_eq!(code, Some(0), "{text}");
    let (_, text) = gabion(&["target", "list", "--admin", server.admin()]).await;
    assert!(text.contains(&seventh) && !text.contains("size unknown"), "{text}");
    let drained = server.targets()[0].display().to_string();
    let (code, text) = target(&server, &["drain", &drained]).await;
    assert_eq!(code, Some(0), "{text}");
    wait_until(&server, "the drained target", |log, _| {
        let mut targets = log["targets"].as_array().unwrap().iter();
        targets.find(|target| target["name"] == *drained).is_some_and(|target| target["shards"] == 0)
    })
    .await;
    let (code, text) = target(&server, &["add", &drained]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is in use as a target") && text.contains("this server is"), "{text}");
    let (code, text) = target(&server, &["remove", &drained]).await;
    assert_eq!(code, Some(0), "{text}");
    // Nothing keeps its drive from being taken out, or from coming back.
    let end = Instant::now() + PATIENCE;
    while !held_in(&server, &drained).is_empty() {
        assert!(Instant::now() < end, "{:?} are open still", held_in(&server, &drained));
        sleep(Duration::from_millis(100)).await;
    }
    for action in ["add", "remove"] {
        let (code, text) = target(&server, &[action, &drained]).await;
        assert_eq!(code, Some(0), "{text}");
    }

    // Whoever restarts it names the old targets; the new ones are found.
    server.crash().await.unwrap();
    let log = server.log();
    let (_, welcome) = log.rsplit_once("endpoint:").unwrap();
    let told = |target: &str| welcome.contains(&format!("target:      {target} ("));
    assert!(told(&seventh) && told(&replacement) && !told(&drained) && !told(&dead), "{welcome}");
    let client = server.client();
    for number in 0..OBJECTS {
        let got = client.get_object().bucket(BUCKET).key(number.to_string()).send().await.unwrap();
        assert_eq!(bytes_of(got).await.unwrap(), content(number).bytes(), "{number}");
    }
}

/// The start finds what is wrong with them before it makes or opens anything, and so does who asks before.
#[tokio::test]
async fn files_that_settings_name_are_read_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (target, key) = (path("target"), path("key"));
    fs::create_dir(&target).unwrap();
    for command in [&["config", "check"][..], &["server"]] {
        for (content, complaint) in [(None, "can not be read"), (Some("short"), "must have at least 32 characters")] {
            if let Some(content) = content {
                fs::write(&key, content).unwrap();
            }
            let (code, text) = gabion(&[command, &[&target, "--iam-key-file", &key]].concat()).await;
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains(&format!("iam.key_file: {key} {complaint}")), "{text}");
            assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{command:?} made something");
        }
        fs::remove_file(&key).unwrap();
    }
    fs::write(&key, "k".repeat(32)).unwrap();
    let (code, text) = gabion(&["config", "check", &target, "--iam-key-file", &key]).await;
    assert_eq!(code, Some(0), "{text}");
}

/// Damage is trouble until it is repaired, and no longer.
#[tokio::test]
async fn status_is_well_again_when_what_a_scrub_found_is_repaired() {
    let mut server = Server::start(Setup::six()).await.unwrap();
    let client = server.client();
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    let content = Content::new(1, 3_000_000);
    let body = ByteStream::from(content.bytes());
    client.put_object().bucket(BUCKET).key("large").body(body).send().await.unwrap();
    // Seals the segments, so that there is something to scrub.
    server.crash().await.unwrap();
    server.paused(|| flip(&shard_files(&server, &[0]), Place::Payload)).await.unwrap();
    let state = server.state().display().to_string();
    let (code, text) = gabion(&["scrub", "--wait", "--admin", server.admin(), "--state", &state]).await;
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("bad shard"), "{text}");
    for _ in 0..2 {
        // What was repaired just before a kill is looked at once more.
        wait_until(&server, "the end of all trouble", |_, code| code == Some(0)).await;
        server.crash().await.unwrap();
    }
    let got = server.client().get_object().bucket(BUCKET).key("large").send().await.unwrap();
    assert!(bytes_of(got).await.unwrap() == content.bytes());
}
