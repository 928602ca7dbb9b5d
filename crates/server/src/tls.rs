//! TLS for a listener: certificate and key from PEM files that may be replaced while the server runs.
//!
//! Connections that are open keep the certificate they began with. Files that can not be used are reported once per change
//! and the old pair stays in use: a botched renewal must not take the service down.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// How often the files are looked at: two `stat` calls.
const POLL: Duration = Duration::from_secs(10);

/// Largest PEM file that is read, in bytes: a long chain has some tens of KiB.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes of what is sent in a record: 128 less than there may be, so that one record after the other begins at another place of a page.
///
/// rustls copies them behind the five bytes of the record's head. Bodies lie at the beginning of a page, and so does the memory for a record; and a copy that goes a few bytes further
/// into its page than it comes from is one of 4 GB/s instead of 100 on AMD's Zen 3 and 4 with a glibc that takes `rep movsb` for it, as Debian 12's does
/// (<https://sourceware.org/bugzilla/show_bug.cgi?id=30994>): it was a third of what a large body took.
const RECORD_BODY_BYTES: usize = 16 * 1024 - 128;
/// Bytes of a record's head.
const RECORD_HEAD_BYTES: usize = 5;
/// Records that are encrypted at a time, for one write to the socket.
const RECORDS_PER_WRITE: usize = 4;

/// The PEM files of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Why a certificate or key can not be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can not be read.
    #[error("the TLS file {} can not be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("the TLS file {} holds no usable {what}: {detail}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// Certificate and key do not fit.
    #[error("the TLS certificate {} and key {} can not be used together: {source}", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls said.
        source: rustls::Error,
    },
}

/// A certificate in use, replaced when its files change.
pub struct ReloadingTls {
    files: TlsFiles,
    current: ArcSwap<ServerConfig>,
}

impl std::fmt::Debug for ReloadingTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReloadingTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ReloadingTls {
    /// Reads both files.
    ///
    /// # Errors
    /// When a file can not be read or used, or the two do not fit.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let config = load(&files)?;
        Ok(Self { files, current: ArcSwap::from_pointee(config) })
    }

    /// Reads both files again; connections that are accepted from then on use them.
    ///
    /// # Errors
    /// As [`ReloadingTls::load`]; the old pair stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.store(Arc::new(load(&self.files)?));
        Ok(())
    }

    /// Looks at the files now and then and reloads them when they have changed, until `stop`.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut seen = self.stamp();
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = stop.cancelled() => return,
            }
            let stamp = self.stamp();
            if stamp == seen {
                continue;
            }
            seen = stamp;
            match self.reload() {
                Ok(()) => tracing::info!(certificate = %self.files.certificate.display(), "TLS certificate reloaded"),
                Err(error) => {
                    tracing::error!(%error, "the TLS files have changed and can not be used; the old certificate stays in use")
                }
            }
        }
    }

    /// Handshake of one connection.
    ///
    /// # Errors
    /// When the client breaks off or does not agree.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        // Else each write would end with a short record, and the next one begin where this one did; so does one that the socket has no room for, at some place.
        let whole_records = Some(RECORDS_PER_WRITE * RECORD_BODY_BYTES);
        acceptor.accept_with(stream, |connection| connection.set_buffer_limit(whole_records)).await
    }

    /// What tells a changed file: a renewal replaces it, which changes its time, or its length at least.
    fn stamp(&self) -> [Option<(SystemTime, u64)>; 2] {
        [&self.files.certificate, &self.files.key].map(|path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
    }
}

fn load(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let chain = read(&files.certificate)?;
    let chain = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(&files.certificate, "certificate", &error))?;
    if chain.is_empty() {
        return Err(unusable(&files.certificate, "certificate", &pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| unusable(&files.key, "private key", &error))?;
    let pair = |source| TlsError::Pair { certificate: files.certificate.clone(), key: files.key.clone(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(pair)?;
    // What AWS speaks comes first, for clients that take either: over HTTP/2 nobody tells them to go on with a body that they hold back (hyper says no `100 Continue`
    // there), and their streams share one connection.
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    config.max_fragment_size = Some(RECORD_HEAD_BYTES + RECORD_BODY_BYTES);
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let file = |source| TlsError::File { path: path.to_owned(), source };
    let length = fs::metadata(path).map_err(file)?.len();
    if length > PEM_BYTES_MAX {
        return Err(file(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB")));
    }
    fs::read(path).map_err(file)
}

fn unusable(path: &Path, what: &'static str, error: &pem::Error) -> TlsError {
    TlsError::Pem { path: path.to_owned(), what, detail: error.to_string() }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tls/certificate.pem");
    const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tls/key.pem");
    const OTHER_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tls/other-key.pem");

    /// A client that takes the certificate of the tests, and no other.
    pub(crate) fn client() -> rustls::ClientConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(CERTIFICATE).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    #[test]
    fn says_which_file_is_wrong_and_why() {
        let files = |certificate: &str, key: &str| TlsFiles { certificate: certificate.into(), key: key.into() };
        ReloadingTls::load(files(CERTIFICATE, KEY)).unwrap();
        let table = [
            (files("/nowhere/certificate.pem", KEY), "/nowhere/certificate.pem can not be read"),
            (files(KEY, KEY), "key.pem holds no usable certificate"),
            (files(CERTIFICATE, CERTIFICATE), "certificate.pem holds no usable private key"),
            (files(CERTIFICATE, OTHER_KEY), "can not be used together"),
        ];
        for (files, expected) in table {
            let error = ReloadingTls::load(files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_picked_up_and_broken_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: dir.path().join("c.pem"), key: dir.path().join("k.pem") };
        fs::copy(CERTIFICATE, &files.certificate).unwrap();
        fs::copy(KEY, &files.key).unwrap();
        let tls = Arc::new(ReloadingTls::load(files.clone()).unwrap());
        let first = tls.current.load_full();
        let stop = CancellationToken::new();
        let watch = tokio::spawn(Arc::clone(&tls).watch(stop.clone()));
        // The watcher has taken its first stamp before the files change.
        tokio::time::sleep(POLL / 2).await;

        fs::write(&files.certificate, "not a certificate").unwrap();
        tokio::time::sleep(POLL).await;
        assert!(Arc::ptr_eq(&first, &tls.current.load_full()), "a broken file changes nothing");

        let mut longer = fs::read(CERTIFICATE).unwrap();
        longer.extend_from_slice(b"\n# renewed\n");
        fs::write(&files.certificate, longer).unwrap();
        tokio::time::sleep(POLL).await;
        assert!(!Arc::ptr_eq(&first, &tls.current.load_full()), "a good file is taken");
        stop.cancel();
        watch.await.unwrap();
    }

    /// A socket that remembers what was read of it.
    struct Recorder {
        socket: std::net::TcpStream,
        read: Vec<u8>,
    }

    impl Read for Recorder {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let bytes = self.socket.read(room)?;
            self.read.extend_from_slice(&room[..bytes]);
            Ok(bytes)
        }
    }

    impl Write for Recorder {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.socket.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.socket.flush()
        }
    }

    #[tokio::test]
    async fn records_begin_at_other_places_of_a_page() {
        /// A socket takes that many at once: what it has no room for is cut elsewhere.
        const BODY_BYTES: usize = 256 << 10;
        const PAGE_BYTES: usize = 4096;
        /// What a record of TLS 1.3 has behind its head beside what is sent: its kind and a tag.
        const BEHIND_BYTES: usize = 1 + 16;
        let tls = ReloadingTls::load(TlsFiles { certificate: CERTIFICATE.into(), key: KEY.into() }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let mut stream = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
            stream.write_all(&vec![7; BODY_BYTES]).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let client = tokio::task::spawn_blocking(move || {
            let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
            let mut connection = rustls::ClientConnection::new(Arc::new(client()), name).unwrap();
            let mut recorder = Recorder { socket: std::net::TcpStream::connect(address).unwrap(), read: Vec::new() };
            let mut body = Vec::new();
            rustls::Stream::new(&mut connection, &mut recorder).read_to_end(&mut body).unwrap();
            assert_eq!(body, vec![7; BODY_BYTES]);
            recorder.read
        });
        let read = client.await.unwrap();
        server.await.unwrap();
        let (mut records, mut rest) = (Vec::new(), &read[..]);
        while let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEAD_BYTES>() {
            let (record, next) = behind.split_at(u16::from_be_bytes([head[3], head[4]]).into());
            records.push(record.len());
            rest = next;
        }
        // What agrees on keys is shorter.
        let full = records.iter().filter(|&&bytes| bytes == RECORD_BODY_BYTES + BEHIND_BYTES).count();
        assert_eq!(full, BODY_BYTES / RECORD_BODY_BYTES, "{records:?}");
        assert_eq!(BODY_BYTES % RECORD_BODY_BYTES + BEHIND_BYTES, records[records.len() - 2], "{records:?}");
        let bodies = records.iter().skip_while(|&&bytes| bytes != RECORD_BODY_BYTES + BEHIND_BYTES);
        let begins = bodies.take(full).scan(0, |end, bytes| {
            let begin = *end;
            *end += bytes - BEHIND_BYTES;
            Some(begin)
        });
        // Where the copy of a body at the beginning of a page goes a little further than it comes from.
        let further = begins.map(|begin| (PAGE_BYTES + RECORD_HEAD_BYTES - begin % PAGE_BYTES) % PAGE_BYTES);
        assert_eq!(further.filter(|further| (1..32).contains(further)).count(), 1, "the first one");
    }
}
