//! Listings; the model test pages through random ones.

use gabion_store::{CreateUpload, ListObjects, ListUploads, Store};

use crate::harness::*;

async fn list(store: &Store, prefix: &str, delimiter: &str, after: &str, max: usize) -> String {
    let request = ListObjects {
        bucket: bucket("bucket"),
        prefix: prefix.into(),
        delimiter: (!delimiter.is_empty()).then(|| delimiter.into()),
        after: (!after.is_empty()).then(|| after.into()),
        max,
    };
    let page = store.list_objects(request).await.unwrap();
    let mut names: Vec<String> = page.entries.into_iter().map(|entry| entry.key).collect();
    names.extend(page.common_prefixes.into_iter().map(|prefix| format!("[{prefix}]")));
    if let Some(next) = page.next {
        names.push(format!("> {next}"));
    }
    names.join(" ")
}

#[tokio::test]
async fn pages_prefixes_and_delimiters() {
    let world = World::new(1, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    store.create_bucket(bucket("bucket2"), None).await.unwrap();
    put(&store, "bucket2", "a", &bytes(1, 1)).await;
    for name in ["a", "b/1", "b/2", "b/c/3", "b0", "c--x--y", "c--z", "\u{10ffff}/x"] {
        put(&store, "bucket", name, &bytes(1, 1)).await;
    }
    let table = [
        ("", "", "", 100, "a b/1 b/2 b/c/3 b0 c--x--y c--z \u{10ffff}/x"),
        ("", "/", "", 100, "a b0 c--x--y c--z [b/] [\u{10ffff}/]"),
        ("", "/", "", 2, "a [b/] > b/"),
        ("", "/", "b/", 2, "b0 c--x--y > c--x--y"),
        // A marker inside a common prefix is above it.
        ("", "/", "b/1", 100, "b0 c--x--y c--z [\u{10ffff}/]"),
        ("", "/", "b", 1, "[b/] > b/"),
        ("b/", "/", "", 100, "b/1 b/2 [b/c/]"),
        ("b/", "/", "b/1", 1, "b/2 > b/2"),
        ("b/", "/", "b/2", 1, "[b/c/]"),
        ("b", "/", "", 100, "b0 [b/]"),
        ("c", "--", "", 100, "[c--]"),
        ("c--", "--", "", 100, "c--z [c--x--]"),
        ("", "", "b0", 2, "c--x--y c--z > c--z"),
        ("", "", "zzz", 100, "\u{10ffff}/x"),
        ("nothing", "/", "", 100, ""),
        ("", "", "", 0, ""),
        ("b/", "", "a", 100, "b/1 b/2 b/c/3"),
        ("b/", "", "c", 100, ""),
        ("", "/", "", 6, "a b0 c--x--y c--z [b/] [\u{10ffff}/]"),
    ];
    for (prefix, delimiter, after, max, expected) in table {
        assert_eq!(list(&store, prefix, delimiter, after, max).await, expected, "{prefix} {delimiter} {after} {max}");
    }
}

#[tokio::test]
async fn a_delimited_listing_passes_a_crowd_in_one_step() {
    let world = World::new(2, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let names: Vec<String> = (0..300).map(|i| format!("crowd/{i:04}")).chain(["a".into(), "z".into()]).collect();
    futures::future::join_all(names.iter().map(|name| put_one(&store, name))).await;
    assert_eq!(list(&store, "", "/", "", 1000).await, "a z [crowd/]");
    assert_eq!(list(&store, "", "", "crowd/0297", 1000).await, "crowd/0298 crowd/0299 z");
}

/// What it costs follows from the prefixes, not from the keys under them.
#[tokio::test]
async fn a_delimited_listing_scans_no_more_rows_where_folders_are_larger() {
    const FOLDERS: u64 = 30;
    let (ten, hundred) = (scanned_rows(FOLDERS, 10).await, scanned_rows(FOLDERS, 100).await);
    println!("rows scanned for {FOLDERS} folders, in one page and in many: {ten:?} of 10 keys, {hundred:?} of 100");
    for (keys, scanned) in [(10, ten), (100, hundred)] {
        for (rows, pages) in scanned.into_iter().zip([1, FOLDERS.div_ceil(7)]) {
            // After a seek 16 rows are asked for. A page begins in the folder that the one before ended with, and looks for one folder more.
            let most = 16 * (FOLDERS + 2 * pages);
            assert!((FOLDERS..=most).contains(&rows), "{rows} rows of folders of {keys} keys, at most {most}");
        }
    }
}

/// Rows that listings of `folders` folders with `keys` keys each scan, in one page and in pages of 7.
async fn scanned_rows(folders: u64, keys: u64) -> [u64; 2] {
    let world = World::new(4, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let names = (0..folders).flat_map(|folder| (0..keys).map(move |key| format!("{folder:04}/{key:04}")));
    let names: Vec<String> = names.collect();
    futures::future::join_all(names.iter().map(|name| put_one(&store, name))).await;
    let expected: Vec<String> = (0..folders).map(|folder| format!("[{folder:04}/]")).collect();
    let mut scanned = [0; 2];
    for (scanned, max) in scanned.iter_mut().zip([1000, 7]) {
        let before = world.index.scanned.count();
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = list(&store, "", "/", &after, max).await;
            let (names, next) = page.split_once(" > ").unwrap_or((&page, ""));
            found.extend(names.split(' ').map(str::to_owned));
            if next.is_empty() {
                break;
            }
            next.clone_into(&mut after);
        }
        *scanned = world.index.scanned.count() - before;
        assert_eq!(found, expected);
    }
    scanned
}

async fn put_one(store: &Store, name: &str) {
    put(store, "bucket", name, &bytes(1, 1)).await;
}

#[tokio::test]
async fn uploads_are_listed_by_key_and_beginning() {
    let world = World::new(3, config(1, 0));
    let store = world.open().await;
    store.create_bucket(bucket("bucket"), None).await.unwrap();
    let mut ids = Vec::new();
    for name in ["b/1", "a", "a", "c", "a\u{0}", "b/2"] {
        world.clock.advance(std::time::Duration::from_millis(1));
        let request =
            CreateUpload { bucket: bucket("bucket"), key: key(name), attributes: Default::default(), checksum: None };
        ids.push(store.create_upload(request).await.unwrap());
    }
    let number = |id| ids.iter().position(|known| *known == id).unwrap();
    let list = |delimiter: &str, key_marker: Option<&str>, id: Option<usize>, max| {
        let request = ListUploads {
            bucket: bucket("bucket"),
            prefix: String::new(),
            delimiter: Some(delimiter.into()),
            key_marker: key_marker.map(str::to_owned),
            upload_id_marker: id.map(|id| ids[id]),
            max,
        };
        let (store, number) = (store.clone(), &number);
        async move {
            let page = store.list_uploads(request).await.unwrap();
            let mut names: Vec<String> = page.uploads.iter().map(|u| number(u.upload).to_string()).collect();
            names.extend(page.common_prefixes);
            if page.truncated {
                let id = page.next_upload_id_marker.map(number);
                names.push(format!("> {:?} {id:?}", page.next_key_marker.unwrap()));
            }
            names.join(" ")
        }
    };
    assert_eq!(list("", None, None, 10).await, "1 2 4 0 5 3");
    assert_eq!(list("", None, None, 1).await, "1 > \"a\" Some(1)");
    assert_eq!(list("", Some("a"), Some(1), 2).await, "2 4 > \"a\\0\" Some(4)");
    assert_eq!(list("", Some("a"), None, 10).await, "4 0 5 3");
    assert_eq!(list("/", Some("a\u{0}"), None, 1).await, "b/ > \"b/\" None");
    assert_eq!(list("/", Some("b/"), None, 10).await, "3");
}
