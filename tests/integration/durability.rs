//! What survives the loss of targets, of the index, and of bytes.

use std::{fs, io, path::Path};

use aws_sdk_s3::{Client, primitives::ByteStream};
use gabion_tests::{Content, Server, Setup, bytes_of, failure};
use tokio::process::Command;

use crate::BUCKET;

/// Objects of every path: empty, small, at the edges, large.
const SIZES: [usize; 10] = [0, 1, 100, 4096, 60_000, 1 << 20, (1 << 20) + 1, 3_000_000, 9_000_000, 20_000_000];

async fn fill(client: &Client) {
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    for (index, size) in SIZES.into_iter().enumerate() {
        let body = ByteStream::from(Content::new(index as u64, size).bytes());
        client
            .put_object()
            .bucket(BUCKET)
            .key(size.to_string())
            .body(body)
            .metadata("n", index.to_string())
            .send()
            .await
            .unwrap();
    }
    client.put_object().bucket(BUCKET).key("deleted").send().await.unwrap();
    client.delete_object().bucket(BUCKET).key("deleted").send().await.unwrap();
}

async fn verify(client: &Client) {
    for (index, size) in SIZES.into_iter().enumerate() {
        let got = client.get_object().bucket(BUCKET).key(size.to_string()).send().await.unwrap();
        assert_eq!(got.metadata().unwrap()["n"], index.to_string());
        assert_eq!(bytes_of(got).await.unwrap(), Content::new(index as u64, size).bytes(), "{size}");
    }
    let listed = client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    assert_eq!(listed.key_count(), Some(SIZES.len() as i32));
    assert_eq!(failure(client.get_object().bucket(BUCKET).key("deleted").send().await).status(), Some(404));
}

#[tokio::test]
async fn any_two_of_six_targets_may_be_lost() {
    for lost in [[0, 1], [2, 5], [4, 5]] {
        let mut server = Server::start(Setup::six()).await.unwrap();
        fill(&server.client()).await;
        server.kill().await;
        for index in lost {
            fs::remove_dir_all(&server.targets()[index]).unwrap();
        }
        server.spawn_degraded().await.unwrap();
        let client = server.client();
        verify(&client).await;
        // Four targets are too few to write what would survive one more loss: that is said, and nothing is half done.
        let put = client.put_object().bucket(BUCKET).key("new").body(ByteStream::from_static(b"x")).send().await;
        assert_eq!(failure(put).status(), Some(503));
        assert_eq!(failure(client.head_object().bucket(BUCKET).key("new").send().await).status(), Some(404));
    }
}

#[tokio::test]
async fn targets_may_be_lost_under_a_running_server() {
    let mut server = Server::start(Setup::six()).await.unwrap();
    fill(&server.client()).await;
    fs::remove_dir_all(&server.targets()[3]).unwrap();
    verify(&server.client()).await;
    let client = server.client();
    // The first write may be what finds the target gone; from then on writes go to the others.
    let body = || ByteStream::from(Content::new(99, 2_000_000).bytes());
    let mut written = false;
    for _ in 0..5 {
        written |= client.put_object().bucket(BUCKET).key("after").body(body()).send().await.is_ok();
    }
    assert!(written, "{}", server.log_tail());
    client.delete_object().bucket(BUCKET).key("after").send().await.unwrap();
    server.crash().await.unwrap();
    verify(&server.client()).await;
}

#[tokio::test]
async fn the_index_is_rebuilt_when_it_is_lost() {
    for setup in [Setup::six(), Setup::single()] {
        let mut server = Server::start(setup).await.unwrap();
        fill(&server.client()).await;
        server.kill().await;
        fs::remove_dir_all(server.state().join("index")).unwrap();
        server.spawn().await.unwrap();
        verify(&server.client()).await;

        // A damaged index is as good as none.
        server.stop().await.unwrap();
        damage_files(&server.state().join("index")).unwrap();
        server.spawn().await.unwrap();
        verify(&server.client()).await;

        server.stop().await.unwrap();
        for wish in [&["--verify"][..], &[], &["--verify", "--without-snapshot"]] {
            let mut command = Command::new(Server::program());
            let output = command.arg("rebuild-index").args(wish).args(server.storage_arguments()).output();
            let output = output.await.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(!server.state().join("index.new").exists());
        server.spawn().await.unwrap();
        verify(&server.client()).await;
    }
}

#[tokio::test]
async fn an_index_is_not_thrown_away_where_it_can_not_be_rebuilt() {
    let mut server = Server::start(Setup::six()).await.unwrap();
    fill(&server.client()).await;
    server.stop().await.unwrap();
    let away: Vec<_> =
        server.targets()[..3].iter().map(|target| (target.clone(), target.with_extension("away"))).collect();
    for (target, away) in &away {
        fs::rename(target, away).unwrap();
    }
    let output = Command::new(Server::program()).arg("rebuild-index").args(server.storage_arguments()).output();
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    for (target, away) in &away {
        fs::rename(away, target).unwrap();
    }
    assert!(!server.state().join("index.new").exists());
    server.spawn().await.unwrap();
    assert!(!server.log_tail().contains("rebuilt"), "{}", server.log_tail());
    verify(&server.client()).await;
}

/// Overwrites the middle of every file.
fn damage_files(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            damage_files(&entry.path())?;
        } else {
            let mut bytes = fs::read(entry.path())?;
            let (from, to) = (bytes.len() / 4, bytes.len() * 3 / 4);
            for byte in &mut bytes[from..to] {
                *byte ^= 0x5a;
            }
            fs::write(entry.path(), bytes)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn damaged_shards_are_noticed_and_reconstructed() {
    let mut server = Server::start(Setup::six()).await.unwrap();
    fill(&server.client()).await;
    server.stop().await.unwrap();
    for index in [1, 4] {
        damage_files(&server.targets()[index].join("segments")).unwrap();
    }
    server.spawn().await.unwrap();
    verify(&server.client()).await;
}

#[tokio::test]
async fn without_parity_damage_is_an_error_and_never_wrong_bytes() {
    let mut server = Server::start(Setup::single()).await.unwrap();
    fill(&server.client()).await;
    server.stop().await.unwrap();
    damage_files(&server.targets()[0].join("segments")).unwrap();
    // The server may refuse to start on a log that it can not trust; if it serves, it serves nothing wrong.
    if server.spawn().await.is_err() {
        return;
    }
    let client = server.client();
    for (index, size) in SIZES.into_iter().enumerate() {
        let Ok(got) = client.get_object().bucket(BUCKET).key(size.to_string()).send().await else { continue };
        if let Ok(bytes) = bytes_of(got).await {
            assert_eq!(bytes, Content::new(index as u64, size).bytes(), "{size}");
        }
    }
}
