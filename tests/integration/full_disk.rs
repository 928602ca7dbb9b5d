//! A full disk: writers are told, readers and deleters go on, space comes back.

use std::time::Duration;

use aws_sdk_s3::{
    Client,
    error::SdkError,
    operation::put_object::{PutObjectError, PutObjectOutput},
    primitives::ByteStream,
};
use gabion_tests::{Content, Outcome, Server, Setup, bytes_of, failure};

use crate::{
    BUCKET,
    small_disk::{FileSystem, SmallDisk},
};

/// Room that a test leaves on its disk, which is larger where mkfs wants it so.
const ROOM_MIB: u32 = 160;
const OBJECT_BYTES: usize = 2_000_000;

async fn put(client: &Client, number: u64) -> Result<PutObjectOutput, SdkError<PutObjectError>> {
    let body = ByteStream::from(Content::new(number, OBJECT_BYTES).bytes());
    client.put_object().bucket(BUCKET).key(number.to_string()).body(body).send().await
}

async fn verify(client: &Client, number: u64) {
    let got = client.get_object().bucket(BUCKET).key(number.to_string()).send().await.unwrap();
    assert_eq!(bytes_of(got).await.unwrap(), Content::new(number, OBJECT_BYTES).bytes());
}

#[tokio::test]
async fn a_full_tmpfs_refuses_writes_and_nothing_else() {
    fill_up(FileSystem::Tmpfs, ROOM_MIB).await;
}

#[tokio::test]
async fn a_full_ext4_refuses_writes_and_nothing_else() {
    fill_up(FileSystem::Ext4, ROOM_MIB + 32).await;
}

#[tokio::test]
async fn a_full_xfs_refuses_writes_and_nothing_else() {
    fill_up(FileSystem::Xfs, 320).await;
}

async fn fill_up(file_system: FileSystem, disk_mib: u32) {
    let Some(disk) = SmallDisk::mount(file_system, disk_mib) else { return };
    disk.leave(ROOM_MIB);
    let setup = Setup::single()
        .below(disk.path())
        .flag("--segment-payload-bytes", "8MiB")
        .flag("--segment-target-reserve-bytes", "16MiB")
        .flag("--index-reserve-bytes", "8MiB")
        .flag("--lanes-small", "1")
        .flag("--lanes-large", "2");
    let mut server = Server::start(setup).await.unwrap();
    let client = server.client();
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    let mut stored = 0;
    let outcome = loop {
        match put(&client, stored).await {
            Ok(_) => stored += 1,
            Err(error) => break failure(Err::<(), _>(error)),
        }
        assert!(stored < 1000, "the disk is smaller than that");
    };
    assert_eq!(outcome.status(), Some(507), "{outcome:?} after {stored} objects");
    assert!(stored > 20, "most of the disk was used: {stored} objects");

    for number in 0..stored {
        verify(&client, number).await;
    }
    client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    server.crash().await.expect("a server with a full disk starts");
    let client = server.client();
    for number in 0..stored {
        verify(&client, number).await;
    }
    // Deletes go on, and the space of dead segments comes back.
    for number in 1..stored {
        client.delete_object().bucket(BUCKET).key(number.to_string()).send().await.unwrap();
    }
    let again = async {
        loop {
            match put(&client, stored).await {
                Ok(_) => return,
                Err(error) => match failure(Err::<(), _>(error)) {
                    Outcome::Refused(507, _) => tokio::time::sleep(Duration::from_millis(100)).await,
                    other => panic!("{other:?}"),
                },
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("space comes back");
    verify(&client, 0).await;
    verify(&client, stored).await;
}
