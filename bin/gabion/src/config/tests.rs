//! Layering, unknown names, values: tables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::layers::{Layers, Problem, Resolved, Source};
use super::settings::{Config, SETTINGS, Setting};
use super::values::{ByteCount, ListenAddress, OptionalList, Span, Value, Wait};

fn layers(flags: &[(&'static str, &str)], environment: &[(&str, &str)], file: &str) -> Layers {
    Layers {
        flags: flags.iter().map(|(key, text)| (*key, vec![(*text).to_owned()])).collect(),
        environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        file: Some((PathBuf::from("gabion.toml"), file.to_owned())),
    }
}

fn resolve(layers: Layers) -> Resolved {
    let resolved = layers.resolve();
    assert!(resolved.problems().is_empty(), "{:?}", resolved.problems());
    resolved
}

fn problems(layers: Layers) -> String {
    let found = Config::read(&layers.resolve()).unwrap_err();
    found.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn defaults_hold_together() {
    let config = Config::read(&resolve(Layers::default())).unwrap();
    assert_eq!(config.listen, [ListenAddress("127.0.0.1:9000".to_owned())]);
    assert_eq!(config.admin_listen.0.len(), 1);
    assert_eq!(config.region.0, "us-east-1");
    assert_eq!((config.targets.len(), config.domain.len()), (0, 0));
    assert_eq!((config.geometry, config.state), (None, None));
    assert_eq!(config.limits_header_timeout, Span(Duration::from_secs(30)));
    assert_eq!(config.segment_payload_bytes, ByteCount(1 << 30));
}

#[test]
fn defaults_are_those_of_the_crates_below() {
    let config = Config::read(&resolve(Layers::default())).unwrap();
    let limits = gabion_server::http::HttpLimits::default();
    assert_eq!(crate::server::limits(&config), limits);
    let log = gabion_segment::LogConfig::new(gabion_types::Geometry::SINGLE);
    assert_eq!((config.lanes_small, config.lanes_large), (log.small_lanes, log.large_lanes));
    assert_eq!(config.segment_payload_bytes.0, log.segment_payload_bytes);
    assert_eq!(config.segment_prewrite_records, log.prewrite_records_max);
    assert_eq!(config.segment_target_reserve_bytes.0, log.target_reserve_bytes);
    assert_eq!(config.memory_stripe_bytes.0, log.stripe_memory_bytes);
    assert_eq!(config.repair_delay.millis(), log.upkeep.repair_delay_ms);
    assert_eq!(config.repair_bytes_per_s.0, log.upkeep.repair_bytes_per_s);
    assert_eq!(config.repair_concurrency, log.upkeep.repair_concurrency);
    assert_eq!(config.scrub_bytes_per_s.0, log.upkeep.scrub_bytes_per_s);
    let store = gabion_store::StoreConfig::new(log);
    assert_eq!(config.scrub_interval_hours as u64, store.scrub_interval_h);
    assert_eq!(config.memory_put_bytes.0, store.put_memory_bytes);
    assert_eq!(config.memory_read_bytes.0, store.read_memory_bytes);
    assert_eq!(config.memory_read_ahead_stripes, store.read_ahead_stripes);
    assert_eq!(config.memory_wait.0.as_millis(), u128::from(store.memory_wait_ms));
    assert_eq!(config.index_reserve_bytes.0, store.index_reserve_bytes);
    assert_eq!(config.index_snapshot_bytes.0, store.index_snapshot_bytes);
    assert_eq!(config.index_snapshot_interval_hours as u64, store.index_snapshot_interval_h);
    assert_eq!(config.checkpoint_interval.millis(), store.checkpoint_interval_ms);
    assert_eq!(config.checkpoint_bytes.0, store.checkpoint_bytes);
    assert_eq!(config.region.0, store.region);
    assert_eq!(config.compaction_writers_wait.millis(), store.compaction.writers_wait_ms);
    let notifications = gabion_server::notifications::NotificationOptions::default();
    assert_eq!(config.notifications_queue_bytes.0, notifications.queue_bytes);
    assert_eq!(config.notifications_when_full.0, notifications.when_full);
    assert_eq!(config.notifications_records_per_message, notifications.records_per_message);
    let index = gabion_metadata::IndexOptions::default();
    assert_eq!(config.index_cache_bytes.0, index.cache_bytes);
    assert_eq!(config.index_row_cache_bytes.0, index.row_cache_bytes);
    assert_eq!(config.index_journal_bytes.0, index.journal_bytes_max);
}

#[test]
fn flags_beat_the_environment_beats_the_file() {
    let file = "region = 'file'\n[limits]\nheader_timeout = '3s'\n[lanes]\nsmall = 3\n";
    let environment = [("GABION_REGION", "environment"), ("GABION_LIMITS_HEADER_TIMEOUT", "2s"), ("PATH", "/bin")];
    let resolved = resolve(layers(&[("region", "flag")], &environment, file));
    let table = [
        ("region", "flag", Source::Flag("flag --region".to_owned())),
        ("limits.header_timeout", "2s", Source::Environment("GABION_LIMITS_HEADER_TIMEOUT".to_owned())),
        ("lanes.small", "3", Source::File(PathBuf::from("gabion.toml"))),
        ("lanes.large", "4", Source::Default),
    ];
    for (key, text, source) in table {
        let given = resolved.given(key);
        assert_eq!((given.texts.as_slice(), &given.source), (&[text.to_owned()][..], &source), "{key}");
    }
}

#[test]
fn lists_come_as_arrays_or_with_commas() {
    let targets = |layers| Config::read(&resolve(layers)).unwrap().targets;
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(targets(layers(&[], &[], "targets = ['/a,b', '/c']")), paths(&["/a,b", "/c"]));
    assert_eq!(targets(layers(&[], &[], "targets = '/a'")), paths(&["/a"]));
    assert_eq!(targets(layers(&[], &[("GABION_TARGETS", "/a, /b")], "targets = ['/c']")), paths(&["/a", "/b"]));
    assert_eq!(targets(layers(&[], &[("GABION_TARGETS", "")], "targets = ['/c']")), paths(&[]));
    let admin = |text| OptionalList::<ListenAddress>::parse(&[String::from(text)]).unwrap().0.len();
    assert_eq!((admin("none"), admin("127.0.0.1:1")), (0, 1));
}

#[test]
fn unknown_names_are_errors_that_name_the_nearest() {
    let table = [
        (layers(&[], &[], "regoin = 'x'"), "the key regoin is unknown; did you mean region?"),
        (
            layers(&[], &[], "[limits]\nheader_timout = '1s'"),
            "limits.header_timout is unknown; did you mean limits.header_timeout?",
        ),
        (layers(&[], &[], "header_timeout = '1s'"), "did you mean limits.header_timeout?"),
        (layers(&[], &[], "[limit]\nidle_timeout = '1s'"), "did you mean limits.idle_timeout?"),
        (layers(&[], &[], "zzz = 1"), "the key zzz is unknown; see gabion config check"),
        (layers(&[], &[("GABION_REGON", "x")], ""), "GABION_REGON is unknown; did you mean GABION_REGION?"),
        (layers(&[], &[("GABION_ROOT_SECRET", "x")], ""), "did you mean GABION_ROOT_SECRET_KEY?"),
        (layers(&[], &[], "region = "), "gabion.toml is not valid TOML"),
        (
            layers(&[], &[], "region = 1.5"),
            "region: a value must be a text, a whole number, true or false, not a float",
        ),
    ];
    for (layers, expected) in table {
        let problems = problems(layers);
        assert!(problems.contains(expected), "{problems}");
    }
}

#[test]
fn variables_that_are_no_settings_are_left_alone() {
    let environment = [
        "GABION_CONFIG",
        "GABION_ROOT_ACCESS_KEY",
        "GABION_ROOT_SECRET_KEY",
        "GABION_ACCESS_KEY",
        "GABION_SESSION_TOKEN",
        "GABION_TEST_SEED",
        "GABION_BENCH_X",
    ];
    let environment: Vec<_> = environment.iter().map(|name| (*name, "x")).collect();
    resolve(layers(&[], &environment, ""));
}

#[test]
fn wrong_values_say_where_they_stand_and_what_is_right() {
    let table = [
        (layers(&[("geometry", "4-2")], &[], ""), "geometry (from flag --geometry): geometry \"4-2\""),
        (
            layers(&[], &[("GABION_DURABILITY", "fast")], ""),
            "durability (from environment GABION_DURABILITY): \"fast\" is neither sync nor relaxed",
        ),
        (
            layers(&[], &[], "[limits]\nidle_timeout = 30"),
            "limits.idle_timeout (from file gabion.toml): the unit is missing: write 30s or 30ms",
        ),
        (layers(&[], &[], "listen = 'localhost'"), "has no port: write localhost:9000"),
        (layers(&[("listen", "9410")], &[], ""), "write 127.0.0.1:9410, or 0.0.0.0:9410 for all"),
        (layers(&[("admin_listen", "off")], &[], ""), "\"off\" is not understood: write none to switch it off"),
        (layers(&[], &[], "listen = []"), "listen must name at least one address"),
        (layers(&[], &[], "[tls]\ncert = '/c'"), "tls.cert and tls.key must be given together"),
        (layers(&[], &[], "targets = ['/a', '/a']"), "the target /a is given twice"),
        (layers(&[], &[], "targets = ['/a', '/b']\ngeometry = '2+1'"), "geometry 2+1 needs 3 targets, but 2 are given"),
        (layers(&[], &[], "targets = ['/a']\ngeometry = '2+1'"), "geometry 2+1 needs 3 targets, but 1 is given"),
        (layers(&[("segment.stripe_bytes", "100KiB")], &[], ""), "segment.stripe_bytes must be a multiple of 64KiB"),
        (
            layers(&[("segment.stripe_bytes", "64KiB")], &[], "geometry = '2+1'"),
            "segment.stripe_bytes is 64KiB: with geometry 2+1 it must be a multiple of 128KiB, 16MiB at most",
        ),
        (
            layers(&[("segment.payload_bytes", "4MiB")], &[], "geometry = '4+2'"),
            "segment.payload_bytes is 4MiB: with geometry 4+2 and stripes of 8MiB (segment.stripe_bytes) it must be",
        ),
        (
            layers(&[("memory.stripe_bytes", "8MiB")], &[], "geometry = '4+2'"),
            "memory.stripe_bytes is 8MiB: with geometry 4+2 a stripe of 8MiB (segment.stripe_bytes) takes 12MiB",
        ),
        (layers(&[], &[], "[lanes]\nsmall = 0"), "lanes.small must be from 1 to 256"),
        (layers(&[], &[], "region = ['a', 'b']"), "one value is needed, not 2"),
        (layers(&[("region", "a b")], &[], ""), "region (from flag --region): \"a b\" is not the name of a region"),
        (layers(&[("domain", "s3..org")], &[], ""), "domain (from flag --domain): \"s3..org\" is not a domain"),
        (layers(&[], &[], "website_domain = ['-/']"), "website_domain (from file gabion.toml): \"-/\" is not a domain"),
        (layers(&[], &[], "[audit]\nwebhook = 'hooks.example.org'"), "hooks.example.org: no address of a web server"),
        (layers(&[], &[], "[audit]\nwebhook = 'http://u:p@h/'"), "an address of a web server holds a user"),
        (layers(&[], &[], "[vault]\nurl = 'https://:8200'\ntoken_file = '/t'"), "https://:8200: \":8200\" is no HOST"),
        (layers(&[], &[], "[vault]\nurl = 'https://v:82O0'\ntoken_file = '/t'"), "\"82O0\" is no port"),
        (layers(&[], &[], "[audit]\nwebhook = 'http://[::1]:99999/'"), "\"99999\" is no port"),
        (layers(&[("region", "US-EAST-1")], &[], ""), "lower-case letters, digits and hyphens"),
        (layers(&[], &[], "[log]\nfilter = 'gabion=loud'"), "\"gabion=loud\" is no filter"),
        (layers(&[], &[], "[notifications]\ntargets = ['hook']"), "\"hook\" is not NAME=URL"),
        (
            layers(&[], &[], "[notifications]\ntargets = ['a=http://h/', 'a=http://i/']"),
            "the notification target a is given twice",
        ),
        (
            layers(&[], &[], "[notifications]\ntargets = ['a=http://h/']\ntoken_files = ['b=/t']"),
            "b=/t is not NAME=PATH with the name of a target",
        ),
        (
            layers(&[], &[], "[notifications]\ntargets = ['a=http://h/']\naccounts = ['a=me']"),
            "a=me is not NAME=ACCOUNT with the name of a target and an account of 12 digits",
        ),
    ];
    for (layers, expected) in table {
        let problems = problems(layers);
        assert!(problems.contains(expected), "{problems}");
    }
    let both = problems(layers(&[], &[], "sigv2 = 'x'\ndriver = 'y'"));
    assert_eq!(both.lines().count(), 2, "all that is wrong is named at once: {both}");
}

#[test]
fn a_directory_is_one_target_however_it_is_spelled() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().file_name().unwrap().to_str().unwrap();
    // One that is there, and one that is still to be made.
    std::fs::create_dir(dir.path().join("a")).unwrap();
    for target in ["a", "b"] {
        let (one, other) = (dir.path().join(target), dir.path().join("..").join(name).join(target));
        let given = |paths: [&PathBuf; 2]| layers(&[], &[], &format!("targets = {paths:?}"));
        let found = problems(given([&one, &other]));
        assert!(found.contains(&format!("is given twice: it is the same directory as {}", one.display())), "{found}");
        resolve(given([&one, &dir.path().join("c")]));
    }
}

#[test]
fn sizes_and_times_have_units() {
    let bytes = |text: &str| ByteCount::parse(&[text.to_owned()]);
    for (text, expected) in [
        ("0", 0),
        ("4096", 4096),
        ("64MiB", 64 << 20),
        ("1 GiB", 1 << 30),
        ("2TiB", 2 << 40),
        ("1kB", 1000),
        ("3K", 3072),
    ] {
        assert_eq!(bytes(text), Ok(ByteCount(expected)), "{text}");
    }
    for text in ["", "MiB", "-1", "1.5MiB", "1 mib", "99999999999999999999", "18014398509481984TiB"] {
        assert!(bytes(text).is_err(), "{text}");
    }
    for (bytes, text) in [(0, "0"), (4096, "4KiB"), (1 << 30, "1GiB"), (1000, "1000"), (64 << 20, "64MiB")] {
        assert_eq!(ByteCount(bytes).to_string(), text);
    }
    let span = |text: &str| Span::parse(&[text.to_owned()]).map(Span::millis);
    for (text, expected) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000)] {
        assert_eq!(span(text), Ok(expected), "{text}");
    }
    for text in ["", "30", "0s", "1d", "9000h", "s"] {
        assert!(span(text).is_err(), "{text}");
    }
    let wait = |text: &str| Wait::parse(&[text.to_owned()]).map(Wait::millis);
    assert_eq!((wait("0s"), wait("20s")), (Ok(0), Ok(20_000)));
    assert!(wait("0").is_err());
}

#[test]
fn the_table_is_sound() {
    let mut names = BTreeMap::new();
    for setting in SETTINGS {
        for name in [setting.key.to_owned(), setting.variable(), setting.flag()] {
            // A key of one word is its own flag.
            let before = names.insert(name.clone(), setting.key);
            assert!(before.is_none_or(|before| before == setting.key), "{name} names two settings");
        }
        assert!(setting.meaning.ends_with('.'), "{}: a meaning is a sentence", setting.key);
        let default = if setting.default.is_empty() { Vec::new() } else { vec![setting.default.to_owned()] };
        (setting.check)(&default).unwrap();
        assert!(std::ptr::eq(Setting::find(setting.key).unwrap(), setting));
    }
}

#[test]
fn the_example_file_names_every_setting_and_its_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/gabion.toml");
    let text = std::fs::read_to_string(path).unwrap();
    // Every key stands there as a comment; uncommented, the file must be good and say the defaults.
    let uncommented: String = text
        .lines()
        .map(|line| line.strip_prefix("#").filter(|line| !line.starts_with([' ', '#'])).unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n");
    let from_file = resolve(layers(&[], &[], &uncommented));
    for setting in SETTINGS {
        let given = from_file.given(setting.key);
        assert_ne!(given.source, Source::Default, "{} is missing in deploy/gabion.toml", setting.key);
        if !setting.default.is_empty() {
            assert_eq!(given.texts.join(","), setting.default, "{}", setting.key);
        }
    }
    let as_it_is = resolve(layers(&[], &[], &text));
    Config::read(&as_it_is).unwrap();
}

#[test]
fn the_report_names_value_source_and_meaning() {
    let report = super::report(&resolve(layers(&[("region", "eu")], &[], "[lanes]\nsmall = 'many'\n")));
    for expected in
        ["region = \"eu\"\n    from: flag --region\n", "ERROR: \"many\" is no whole number", "domain = []\n"]
    {
        assert!(report.contains(expected), "{report}");
    }
    for setting in SETTINGS {
        assert!(report.contains(setting.meaning), "{}", setting.key);
    }
}

#[test]
fn members_of_a_deployment_know_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    let given = || layers(&[("targets", path.as_str()), ("geometry", "2+1")], &[], "");
    assert!(problems(given()).contains("geometry 2+1 needs 3 targets, but 1 is given"));
    std::fs::write(dir.path().join("gabion.json"), "{}").unwrap();
    resolve(given());
}
