//! Every setting, once: its key, type, default and meaning.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gabion_platform::DriverChoice;
use gabion_segment::{Durability, LogConfig};
use gabion_server::s3::Ownership;
use gabion_store::EtagKind;
use gabion_types::Geometry;
use gabion_types::limits::{BLOCK_BYTES, CHUNK_ALIGN_BYTES, CHUNK_PAYLOAD_BYTES_MAX};

use super::layers::{Problem, Resolved};
use super::values::{
    AccessLogChoice, ByteCount, CustomerKeysChoice, DefaultEncryption, DomainName, ListenAddress, LogFilter, LogFormat,
    LogLevel, NotificationTargetUrl, OptionalList, Ratio, RegionName, Span, Value, Wait, WebAddress, WhenFullChoice,
};

/// What a directory holds that belongs to a deployment.
pub(crate) const MEMBERSHIP_FILE: &str = "gabion.json";

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name in the file: sections and names, joined by dots.
    pub(crate) key: &'static str,
    /// Type and unit.
    pub(crate) unit: &'static str,
    /// Whether it takes many values.
    pub(crate) list: bool,
    /// Its default as text; the values of a list are separated by commas. Empty: there is none, the meaning says what applies.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) meaning: &'static str,
    /// Checks the texts of a value.
    pub(crate) check: fn(&[String]) -> Result<(), String>,
}

impl Setting {
    /// The setting with this key.
    pub(crate) fn find(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Its environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("{}{}", super::ENVIRONMENT_PREFIX, self.key.replace('.', "_").to_uppercase())
    }

    /// Its flag, without the two hyphens.
    pub(crate) fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }
}

macro_rules! settings {
    ($($key:literal => $field:ident: $ty:ty = $default:literal, $($meaning:literal)+;)*) => {
        /// Every setting, in the order in which it is shown.
        pub(crate) static SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            unit: <$ty as Value>::UNIT,
            list: <$ty as Value>::LIST,
            default: $default,
            meaning: concat!($($meaning),+),
            check: |texts| <$ty as Value>::parse(texts).map(drop),
        }),*];

        /// The settings with their values.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "the table of settings describes each")]
        pub(crate) struct Config {
            $(pub(crate) $field: $ty,)*
        }

        impl Config {
            /// Reads all values.
            ///
            /// # Errors
            /// With every name that is unknown, every value that is wrong, and every rule between values that is broken.
            pub(crate) fn read(resolved: &Resolved) -> Result<Config, Vec<Problem>> {
                let mut problems = resolved.problems().to_vec();
                $(let $field = resolved.value::<$ty>($key).map_err(|problem| problems.push(problem)).ok();)*
                if !problems.is_empty() {
                    return Err(problems);
                }
                let config = Config { $($field: $field.expect("what is missing is a problem"),)* };
                let broken: Vec<Problem> = config.broken_rules().into_iter().map(Problem).collect();
                if broken.is_empty() { Ok(config) } else { Err(broken) }
            }
        }
    };
}

settings! {
    "targets" => targets: Vec<PathBuf> = "",
        "Directories that hold the data, one on each failure domain (drive, OST, storage target). Also given as arguments, which take precedence.";
    "labels" => labels: Vec<String> = "",
        "Failure domains of targets, each as PATH=LABEL (host, rack, enclosure): shards of a segment are spread over these. By default what was recorded when the \
         target joined, at first each is one by itself.";
    "geometry" => geometry: Option<Geometry> = "",
        "Data and parity shards of new segments: with 4+2 any two targets may be lost. Decided when the targets are first used and then kept; \
         by default it follows from their number: 1+0, 1+1, 2+1, 2+2, 3+2, 4+2, ... up to 8+3.";
    "state" => state: Option<PathBuf> = "",
        "Directory of the index, the lock and the generated credentials; on a local file system, never shared between nodes. \
         By default the directory 'state' in the first target.";
    "listen" => listen: Vec<ListenAddress> = "127.0.0.1:9000",
        "Where S3 is served.";
    "admin_listen" => admin_listen: OptionalList<ListenAddress> = "127.0.0.1:9001",
        "Where /health/live, /health/ready, /metrics and /status are served, without authentication: keep it private. The word none switches it off.";
    "region" => region: RegionName = "us-east-1",
        "The region: clients must sign for it.";
    "domain" => domain: Vec<DomainName> = "",
        "Domains under which bucket.domain names a bucket (virtual-host style). Any other host is path-style.";
    "website_domain" => website_domain: Vec<DomainName> = "",
        "Domains under which bucket.domain is the website of a bucket.";
    "durability" => durability: Durability = "sync",
        "When a write is acknowledged. sync: when it is on stable storage of all its targets. relaxed: when it is written; power loss may take the last \
         checkpoint.interval of writes (never a mere crash of the server).";
    "driver" => driver: DriverChoice = "auto",
        "How targets are read and written. auto chooses for each by its file system and what the kernel allows.";
    "etag" => etag: EtagKind = "md5",
        "What the ETags of new objects and parts are. md5: as on AWS. crc64nvme: the CRC-64 that is computed in any case, as 16 digits with -N behind them; \
         MD5 is then computed only for clients who send Content-MD5.";
    "sigv2" => sigv2: bool = "false",
        "Whether the old Signature Version 2 is accepted (COSBench needs it). It does not protect the body.";
    "encryption.keys" => encryption_keys: Option<PathBuf> = "",
        "File of the keys that wrap the keys of encrypted objects: an id and 32 bytes in base64 on each line, readable by its owner only. Whoever loses it loses \
         the objects. (umask 077; echo k1 $(openssl rand -base64 32) >> FILE) makes one.";
    "encryption.master_key" => encryption_master_key: Option<String> = "",
        "The key for SSE-S3, of the file or of Vault. By default the first of the file.";
    "encryption.kms_key" => encryption_kms_key: Option<String> = "",
        "The key for SSE-KMS where neither request nor bucket names one. By default such a request is refused; without any keys, of the file or of Vault, the site's own \
         serves.";
    "encryption.default" => encryption_default: DefaultEncryption = "none",
        "How objects are encrypted in buckets without an encryption of their own.";
    "encryption.customer_keys" => encryption_customer_keys: CustomerKeysChoice = "local",
        "Over which connections customers may show keys (SSE-C). tls: over TLS only, as on AWS. local: also over those that do not leave the machine, as from a \
         proxy for TLS beside the server. any: whatever is in front of the server sees to it.";
    "vault.url" => vault_url: Option<WebAddress> = "",
        "Address of a HashiCorp Vault or OpenBao whose transit engine keeps keys, like https://vault.example.org:8200. Keys of the file come first.";
    "vault.mount" => vault_mount: String = "transit",
        "Where the transit engine is mounted.";
    "vault.token_file" => vault_token_file: Option<PathBuf> = "",
        "File of the token, read for every call: an agent may renew it.";
    "vault.namespace" => vault_namespace: Option<String> = "",
        "Namespace of the transit engine, if there are such.";
    "vault.ca" => vault_ca: Option<PathBuf> = "",
        "PEM file of those who may have signed the certificate of Vault. By default those whom the system trusts.";
    "vault.timeout" => vault_timeout: Span = "5s",
        "Longest time for a call.";
    "vault.cache" => vault_cache: Span = "5m",
        "How long a key that Vault gave is kept in memory. As long wraps one key what is new.";
    "object_ownership" => object_ownership: Ownership = "BucketOwnerEnforced",
        "Whose the objects are in buckets that do not say. BucketOwnerEnforced: the bucket's owner's, and ACLs do not count, as on AWS. BucketOwnerPreferred and \
         ObjectWriter: the writer's, and ACLs count, as on AWS before 2023.";
    "audit.log" => audit_log: AccessLogChoice = "off",
        "Who did what, from where, and what came of it: one JSON line per request to S3, IAM and STS, and per change over the admin port. A file is opened anew on SIGHUP.";
    "audit.webhook" => audit_webhook: Option<WebAddress> = "",
        "Where such lines are posted as well (http:// or https://, application/x-ndjson), again until they are taken, as far as they fit into memory.";
    "audit.token_file" => audit_token_file: Option<PathBuf> = "",
        "File of the token that is sent to audit.webhook as Authorization: Bearer.";
    "iam.key_file" => iam_key_file: Option<PathBuf> = "",
        "File whose content seals the secrets of access keys where they are stored (AES-256-GCM); at least 32 characters. Without one they are stored as they are. \
         It must stay the same; secrets that were stored without one stay readable.";
    "iam.account_id" => iam_account_id: Option<String> = "",
        "Id of the deployment's own account, 12 digits. By default it follows from the deployment's id. Set it before there are users.";
    "iam.canonical_id" => iam_canonical_id: Option<String> = "",
        "What ACLs and owners of buckets name the deployment's own account by. By default it follows from the deployment's id.";
    "iam.near_providers" => iam_near_providers: bool = "false",
        "Whether OpenID Connect providers, which administrators of accounts name, may be on this machine, on its link, or at the addresses where clouds tell \
         machines their secrets.";
    "access_log" => access_log: AccessLogChoice = "off",
        "One JSON line per request. A file is opened anew on SIGHUP.";
    "workers" => workers: Option<usize> = "",
        "Threads that serve requests. By default one per CPU.";
    "log.level" => log_level: LogLevel = "info",
        "How much is logged to standard error; debug has one line per request.";
    "log.format" => log_format: LogFormat = "text",
        "How the log is written.";
    "log.filter" => log_filter: Option<LogFilter> = "",
        "Overrides log.level for parts of the program, e.g. info,gabion_segment=debug.";
    "tls.cert" => tls_cert: Option<PathBuf> = "",
        "PEM file with the certificate and its chain. With tls.key it makes the data port speak TLS; both are read again when they change.";
    "tls.key" => tls_key: Option<PathBuf> = "",
        "PEM file with the certificate's private key.";
    "limits.connections_max" => limits_connections_max: usize = "4096",
        "Connections served at once on the data port; further ones wait until one ends.";
    "limits.header_timeout" => limits_header_timeout: Span = "30s",
        "Longest time for a TLS handshake and for a request's head.";
    "limits.idle_timeout" => limits_idle_timeout: Span = "75s",
        "Longest time that a connection stays open between two requests.";
    "limits.progress_timeout" => limits_progress_timeout: Span = "30s",
        "A client that is waited for must send or take limits.progress_bytes_min in this time; how long a body takes as a whole is not limited. Clients of HTTP/2 have ten times as long to take something of their answers, as they open their windows seldom.";
    "limits.progress_bytes_min" => limits_progress_bytes_min: ByteCount = "4KiB",
        "Bytes that must move in every limits.progress_timeout.";
    "limits.header_count_max" => limits_header_count_max: usize = "100",
        "Most header fields of a request.";
    "limits.header_bytes_max" => limits_header_bytes_max: ByteCount = "32KiB",
        "Most bytes of a request's target and header fields.";
    "limits.buffer_bytes_max" => limits_buffer_bytes_max: ByteCount = "512KiB",
        "Most bytes that a connection buffers in each direction; at least 8KiB.";
    "limits.streams_max" => limits_streams_max: usize = "128",
        "Most concurrent requests on one HTTP/2 connection.";
    "limits.drain_timeout" => limits_drain_timeout: Span = "30s",
        "How long a shutdown waits for requests in flight before it cuts them.";
    "lanes.small" => lanes_small: usize = "2",
        "Writers of small objects, each with one open segment.";
    "lanes.large" => lanes_large: usize = "4",
        "Writers of large objects, each with one open segment.";
    "segment.payload_bytes" => segment_payload_bytes: ByteCount = "1GiB",
        "Payload of a segment over all its data shards, from 1MiB to 1TiB. With durability sync, segments of small objects have shards of 112MiB where this would give them \
         112 to 384MiB.";
    "segment.stripe_bytes" => segment_stripe_bytes: Option<ByteCount> = "",
        "Payload of one stripe of a large object, a multiple of k times 64KiB. By default about 8MiB.";
    "segment.prewrite_records" => segment_prewrite_records: usize = "24",
        "Zeros are written ahead of stripes while at most so many small objects are written at a time: their syncs then write no metadata, for twice the bytes of such \
         stripes. 0: never; with 1000 the stripes of many clients have them, too, which gains a seventh. ext4 and XFS, with durability sync.";
    "segment.target_reserve_bytes" => segment_target_reserve_bytes: ByteCount = "1GiB",
        "Room on each target that writers leave (then they get 507): three quarters of it are for compaction, which makes room, the rest for deletions and for the index \
         where the state directory lies on one.";
    "memory.stripe_bytes" => memory_stripe_bytes: ByteCount = "256MiB",
        "Memory for stripes of large objects on their way to the targets, parity included.";
    "memory.put_bytes" => memory_put_bytes: ByteCount = "256MiB",
        "Memory for bodies of small objects; a request waits for its share before its body is read.";
    "memory.read_bytes" => memory_read_bytes: ByteCount = "768MiB",
        "Memory for downloads: half for what clients need next, 512KiB each, three quarters of the rest for what is read ahead while it is free, the last eighth for where the \
         bytes of huge objects lie, some 5MiB a TiB.";
    "memory.read_ahead_stripes" => memory_read_ahead_stripes: usize = "3",
        "Stripes that a download of a large object reads ahead.";
    "memory.warm_bytes" => memory_warm_bytes: ByteCount = "64MiB",
        "Memory for objects of up to 16KiB that are read again and again; 0: none.";
    "memory.wait" => memory_wait: Span = "20s",
        "Longest wait for a share of this memory; then the client is told SlowDown.";
    "index.reserve_bytes" => index_reserve_bytes: ByteCount = "512MiB",
        "Room on the index' file system below which nothing new is taken (507 InsufficientStorage); deletions go on.";
    "index.cache_bytes" => index_cache_bytes: ByteCount = "192MiB",
        "Memory for blocks of the index.";
    "index.row_cache_bytes" => index_row_cache_bytes: ByteCount = "128MiB",
        "Memory for hot rows in front of the index.";
    "index.journal_bytes" => index_journal_bytes: ByteCount = "64MiB",
        "Length of the index' journal, which a start after a crash must read; at least 64MiB.";
    "index.snapshot_bytes" => index_snapshot_bytes: ByteCount = "16GiB",
        "Bytes written to the targets after which the index is written there, too, so that one that is lost is soon rebuilt; 0: never, and what was written is given back.";
    "index.snapshot_interval_hours" => index_snapshot_interval_hours: usize = "24",
        "Hours after which the index is written there in any case, if anything changed; 0: never.";
    "repair.delay" => repair_delay: Span = "10m",
        "How long a target may be absent or failed before what it held is built anew on others.";
    "repair.bytes_per_s" => repair_bytes_per_s: ByteCount = "0",
        "Most bytes of shards that are built anew or moved in a second; 0: as fast as the targets go.";
    "repair.concurrency" => repair_concurrency: usize = "2",
        "Segments that are repaired at a time, at least 1.";
    "scrub.interval_hours" => scrub_interval_hours: usize = "168",
        "Hours between two scrubs, each of which reads and checks everything; 0: only when it is asked for.";
    "scrub.bytes_per_s" => scrub_bytes_per_s: ByteCount = "50MiB",
        "Most bytes that the scrub reads and checks in a second; 0: as fast as the targets go.";
    "checkpoint.interval" => checkpoint_interval: Span = "1s",
        "Time between two checkpoints of the index while there are writes.";
    "checkpoint.bytes" => checkpoint_bytes: ByteCount = "1GiB",
        "Bytes written after which a checkpoint is made before its time.";
    "lifecycle.debug_day" => lifecycle_debug_day: Span = "24h",
        "Length of a day of lifecycle rules and inventories, for tests; 24h: days are as long as they are, and end at midnight UTC.";
    "lifecycle.deletions_per_s" => lifecycle_deletions_per_s: usize = "1000",
        "Objects, versions and uploads that lifecycle rules end in a second at most.";
    "logging.interval" => logging_interval: Span = "5m",
        "Longest time that a record of a bucket's access log waits until it is delivered.";
    "notifications.targets" => notifications_targets: Vec<NotificationTargetUrl> = "",
        "Who can be notified of what happens to objects, each as NAME=URL: http:// or https:// for a webhook, nats:// or tls:// with /SUBJECT for a stream of \
         NATS JetStream. Buckets mean it by an ARN that ends with the name, like arn:aws:sqs:us-east-1::NAME.";
    "notifications.token_files" => notifications_token_files: Vec<String> = "",
        "Files of tokens, each as NAME=PATH: what is sent to a webhook as Authorization: Bearer, and to NATS as a token, as a user and a password (two lines) or as credentials (.creds).";
    "notifications.accounts" => notifications_accounts: Vec<String> = "",
        "Accounts whose buckets may mean a target, each as NAME=ACCOUNT with the account's id of 12 digits, a target as often as it has accounts. A target that is not named here is for all.";
    "notifications.queue_bytes" => notifications_queue_bytes: ByteCount = "256MiB",
        "Events that wait for one target, in bytes; at about 700 bytes an event this is a third of a million.";
    "notifications.when_full" => notifications_when_full: WhenFullChoice = "refuse",
        "What becomes of events beyond that. refuse: what would make more is answered with 503 SlowDown before it takes effect. drop: they are dropped and counted.";
    "notifications.records_per_message" => notifications_records_per_message: usize = "1",
        "Events that one message to a target holds at most, as Records.";
    "compaction.live_ratio_max" => compaction_live_ratio_max: Ratio = "0.7",
        "Segments of which at most this part is still needed are compacted: what is needed is written again elsewhere, the segment is deleted. \
         When space is short, fuller ones are compacted, too.";
    "compaction.bytes_per_s" => compaction_bytes_per_s: ByteCount = "64MiB",
        "Bytes that compaction moves per second at most, as long as space is not short; 0: no limit. An object of less than 16 KiB counts as that.";
    "compaction.interval" => compaction_interval: Span = "10s",
        "Time between two looks for segments to compact.";
    "compaction.punch_holes" => compaction_punch_holes: bool = "true",
        "Whether dead parts of segments of large objects are given back where they lie, where the file system can do that (fallocate), before anything is moved.";
    "compaction.writers_wait" => compaction_writers_wait: Wait = "20s",
        "Longest time that a write waits for room while space is short and compaction makes some; then the client is told SlowDown. 0s: writes are not held back, and \
         get 507 where there is no room.";
    "compaction.round_bytes" => compaction_round_bytes: ByteCount = "8GiB",
        "Bytes that one round of compaction moves at most. A round reads the whole index once.";
}

impl Config {
    /// The file of the token for a notification target, if one is given.
    pub(crate) fn token_file(&self, target: &str) -> Option<&Path> {
        let files = self.notifications_token_files.iter().filter_map(|file| file.split_once('='));
        files.filter(|(name, _)| *name == target).map(|(_, path)| Path::new(path)).next_back()
    }

    /// The accounts whose buckets may mean a notification target; none when all may.
    pub(crate) fn notification_accounts(&self, target: &str) -> BTreeSet<String> {
        let accounts = self.notifications_accounts.iter().filter_map(|account| account.split_once('='));
        accounts.filter(|(name, _)| *name == target).map(|(_, account)| account.to_owned()).collect()
    }

    /// The failure domain that is given for a target; empty if none is.
    pub(crate) fn label(&self, target: &Path) -> &str {
        let labels = self.labels.iter().filter_map(|label| label.split_once('='));
        labels.filter(|(path, _)| target == Path::new(path)).map(|(_, label)| label).next_back().unwrap_or_default()
    }

    /// Why these settings do not go with a geometry: segments and memory hold whole stripes, stripes whole blocks for each data shard.
    pub(crate) fn broken_with(&self, geometry: Geometry) -> Option<String> {
        let k = geometry.data();
        let stripe = match self.segment_stripe_bytes {
            Some(stripe) => stripe.in_memory(),
            None => LogConfig::new(geometry).stripe_payload_bytes,
        };
        let (block, most) = (k * BLOCK_BYTES, k * CHUNK_PAYLOAD_BYTES_MAX);
        let shown = |bytes: usize| ByteCount(bytes as u64).to_string();
        if stripe == 0 || !stripe.is_multiple_of(block) || stripe > most || u32::try_from(stripe).is_err() {
            return Some(format!(
                "segment.stripe_bytes is {}: with geometry {geometry} it must be a multiple of {}, {} at most",
                shown(stripe),
                shown(block),
                shown(most.min(u32::MAX as usize / block * block))
            ));
        }
        // A chunk of a stripe has up to two pages more than its payload.
        let segment = stripe + k * 2 * CHUNK_ALIGN_BYTES;
        if self.segment_payload_bytes.0 < segment as u64 {
            return Some(format!(
                "segment.payload_bytes is {}: with geometry {geometry} and stripes of {} (segment.stripe_bytes) it must be {} at least",
                self.segment_payload_bytes,
                shown(stripe),
                shown(segment)
            ));
        }
        let memory = stripe / k * geometry.shards();
        (self.memory_stripe_bytes.0 < memory as u64).then(|| {
            format!(
                "memory.stripe_bytes is {}: with geometry {geometry} a stripe of {} (segment.stripe_bytes) takes {} with its parity",
                self.memory_stripe_bytes,
                shown(stripe),
                shown(memory)
            )
        })
    }

    /// Rules between values, as sentences for those that are broken.
    fn broken_rules(&self) -> Vec<String> {
        let rules = [
            (self.tls_cert.is_some() == self.tls_key.is_some(), "tls.cert and tls.key must be given together"),
            (!self.listen.is_empty(), "listen must name at least one address"),
            (self.workers.is_none_or(|workers| (1..=1024).contains(&workers)), "workers must be from 1 to 1024"),
            (self.limits_connections_max >= 1, "limits.connections_max must be at least 1"),
            (self.limits_header_count_max >= 8, "limits.header_count_max must be at least 8: S3 clients send as many"),
            (
                self.limits_header_bytes_max.0 >= 4096,
                "limits.header_bytes_max must be at least 4KiB: a presigned request has as many",
            ),
            (self.limits_buffer_bytes_max.0 >= 8192, "limits.buffer_bytes_max must be at least 8KiB"),
            (
                self.limits_buffer_bytes_max.0 >= self.limits_header_bytes_max.0,
                "limits.buffer_bytes_max must not be below limits.header_bytes_max: a head must fit in the buffer",
            ),
            ((1..=1_000_000).contains(&self.limits_streams_max), "limits.streams_max must be from 1 to 1000000"),
            (
                (1..=1000).contains(&self.notifications_records_per_message),
                "notifications.records_per_message must be from 1 to 1000",
            ),
            ((1..=256).contains(&self.lanes_small), "lanes.small must be from 1 to 256"),
            ((1..=256).contains(&self.lanes_large), "lanes.large must be from 1 to 256"),
            (
                (1 << 20..=1 << 40).contains(&self.segment_payload_bytes.0),
                "segment.payload_bytes must be from 1MiB to 1TiB",
            ),
            (self.memory_put_bytes.0 >= 1 << 20, "memory.put_bytes must be at least 1MiB"),
            (self.memory_read_ahead_stripes >= 1, "memory.read_ahead_stripes must be at least 1"),
            (self.index_journal_bytes.0 >= 64 << 20, "index.journal_bytes must be at least 64MiB"),
            (self.repair_concurrency >= 1, "repair.concurrency must be at least 1"),
            (self.targets.len() <= 255, "there may be at most 255 targets"),
            (
                self.vault_url.is_some() == self.vault_token_file.is_some(),
                "vault.url and vault.token_file must be given together",
            ),
        ];
        let mut broken: Vec<String> =
            rules.iter().filter(|(holds, _)| !holds).map(|(_, sentence)| (*sentence).to_owned()).collect();
        let is_account = |id: &str| id.len() == 12 && id.bytes().all(|digit| digit.is_ascii_digit());
        if let Some(id) = &self.iam_account_id
            && !is_account(id)
        {
            broken.push("iam.account_id must have 12 digits".to_owned());
        }
        if let Some(id) = &self.iam_canonical_id
            && (!(1..=64).contains(&id.len())
                || !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)))
        {
            broken.push("iam.canonical_id must have up to 64 letters, digits, '-' or '_'".to_owned());
        }
        let names: Vec<&str> = self.notifications_targets.iter().map(|target| target.0.name.as_str()).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                broken.push(format!("the notification target {name} is given twice"));
            }
        }
        for file in &self.notifications_token_files {
            if !file.split_once('=').is_some_and(|(name, path)| names.contains(&name) && !path.is_empty()) {
                broken.push(format!("notifications.token_files: {file} is not NAME=PATH with the name of a target"));
            }
        }
        for given in &self.notifications_accounts {
            if !given.split_once('=').is_some_and(|(name, account)| names.contains(&name) && is_account(account)) {
                broken.push(format!(
                    "notifications.accounts: {given} is not NAME=ACCOUNT with the name of a target and an account of 12 digits"
                ));
            }
        }
        for label in &self.labels {
            match label.split_once('=') {
                Some((path, label))
                    if self.targets.iter().any(|target| target == Path::new(path)) && !label.is_empty() => {}
                Some((path, _)) => broken.push(format!("labels: {path} has no label, or is none of the targets")),
                None => broken.push(format!("labels: {label} is not PATH=LABEL")),
            }
        }
        let places: Vec<PathBuf> = self.targets.iter().map(|target| place(target)).collect();
        for (index, target) in self.targets.iter().enumerate() {
            let Some(first) = places[..index].iter().position(|place| *place == places[index]) else { continue };
            let (shown, first) = (target.display(), &self.targets[first]);
            broken.push(match first == target {
                true => format!("the target {shown} is given twice"),
                false => format!("the target {shown} is given twice: it is the same directory as {}", first.display()),
            });
        }
        // Targets that belong to a deployment know where the others are.
        if let Some(geometry) = self.geometry
            && !self.targets.is_empty()
            && self.targets.len() < geometry.shards()
            && !self.targets.iter().any(|target| is_member(target))
        {
            let (needed, given) = (geometry.shards(), self.targets.len());
            let are = if given == 1 { "is" } else { "are" };
            broken.push(format!("geometry {geometry} needs {needed} targets, but {given} {are} given"));
        }
        match self.geometry {
            Some(geometry) => broken.extend(self.broken_with(geometry)),
            // The geometry stands on the targets, or follows from their number; of this much there is a multiple in each.
            None if self.segment_stripe_bytes.is_some_and(|stripe| !stripe.in_memory().is_multiple_of(BLOCK_BYTES)) => {
                broken.push("segment.stripe_bytes must be a multiple of 64KiB for each data shard".to_owned());
            }
            None => {}
        }
        broken
    }
}

/// Whether a directory belongs to a deployment.
pub(crate) fn is_member(directory: &Path) -> bool {
    directory.join(MEMBERSHIP_FILE).exists()
}

/// Where a directory lies, however it is spelled; one that is still to be made lies where its parent does.
pub(crate) fn place(path: &Path) -> PathBuf {
    if let Ok(place) = path.canonicalize() {
        return place;
    }
    let parent = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    match (parent.and_then(|parent| parent.canonicalize().ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}
