//! What an operator asks a running server.

use std::fs;
use std::process::Output;

use gabion_tests::{Server, Setup};
use tokio::process::Command;

async fn status(admin: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(Server::program()).arg("status").args(["--admin", admin]).args(arguments).output().await.unwrap();
    (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
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
