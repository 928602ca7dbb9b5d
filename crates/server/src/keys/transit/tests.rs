//! Against a little engine of our own, which counts what it is asked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gabion_platform::SystemClock;
use http_body_util::BodyExt;
use hyper::service::service_fn;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// What the engine was asked, and what it answers to everything, if not what is right.
#[derive(Default)]
struct Engine {
    asked: Mutex<Vec<String>>,
    calls: AtomicUsize,
    says: Mutex<Option<(u16, &'static str)>>,
}

impl Engine {
    async fn answer(&self, request: Request<hyper::body::Incoming>) -> http::Response<Full<Bytes>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (parts, body) = request.into_parts();
        let question: serde_json::Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        self.asked.lock().push(format!(
            "{} {} {question} {}",
            parts.method,
            parts.uri.path(),
            header("x-vault-namespace").unwrap_or_default()
        ));
        let (status, text) = match (*self.says.lock(), parts.uri.path().rsplit_once('/')) {
            (Some(says), _) => (says.0, says.1.to_owned()),
            _ if header("x-vault-token").as_deref() != Some("token") => {
                (403, r#"{"errors":["permission denied"]}"#.to_owned())
            }
            (_, Some((_, "absent"))) => (400, r#"{"errors":["encryption key not found"]}"#.to_owned()),
            (_, Some(("/v1/tr/decrypt", _))) if question["ciphertext"] != "vault:v1:x" => {
                (400, r#"{"errors":["invalid ciphertext"]}"#.to_owned())
            }
            (_, Some(("/v1/tr/decrypt", _))) => (200, format!(r#"{{"data":{{"plaintext":"{KEY}"}}}}"#)),
            (_, Some(("/v1/tr/datakey/plaintext", _))) => {
                (200, format!(r#"{{"data":{{"plaintext":"{KEY}","ciphertext":"vault:v1:x"}}}}"#))
            }
            _ => (404, String::new()),
        };
        http::Response::builder().status(status).body(Full::new(Bytes::from(text))).unwrap()
    }
}

/// A clock that stands until it is set.
#[derive(Default)]
struct Standing(AtomicU64);

impl Clock for Standing {
    fn now_ms(&self) -> u64 {
        SystemClock.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Setting {
    engine: Arc<Engine>,
    clock: Arc<Standing>,
    transit: Transit,
    _token: tempfile::NamedTempFile,
}

async fn setting(token: &str) -> Setting {
    let engine = Arc::<Engine>::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = Arc::clone(&engine);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let engine = Arc::clone(&serving);
            let service = service_fn(move |request| {
                let engine = Arc::clone(&engine);
                async move { Ok::<_, std::convert::Infallible>(engine.answer(request).await) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
        }
    });
    let token_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token_file.path(), format!("{token}\n")).unwrap();
    let options = TransitOptions {
        url,
        mount: "tr".into(),
        token_file: token_file.path().to_owned(),
        namespace: Some("team".into()),
        ca: None,
        timeout: Duration::from_secs(20),
        cache: Duration::from_secs(60),
    };
    let clock = Arc::<Standing>::default();
    let transit = Transit::new(options, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    Setting { engine, clock, transit, _token: token_file }
}

#[tokio::test]
async fn keys_are_made_opened_and_kept_for_a_while() {
    let Setting { engine, clock, transit, _token } = setting("token").await;
    let calls = || engine.calls.load(Ordering::Relaxed);
    let (key, wrapped) = transit.new_key("k").await.unwrap();
    assert_eq!((key.expose()[31], &wrapped[..]), (31, &b"vault:v1:x"[..]));
    assert_eq!(engine.asked.lock()[0], r#"POST /v1/tr/datakey/plaintext/k {"bits":256} team"#);
    transit.new_key("k").await.unwrap();
    transit.known_key("k", &wrapped).await.unwrap();
    assert_eq!(calls(), 1, "what was given is kept");
    clock.0.store(60_000_000_000, Ordering::Relaxed);
    assert_eq!(transit.known_key("k", &wrapped).await.unwrap().expose(), key.expose());
    assert_eq!(engine.asked.lock()[1], r#"POST /v1/tr/decrypt/k {"ciphertext":"vault:v1:x"} team"#);
    transit.known_key("k", &wrapped).await.unwrap();
    assert_eq!(calls(), 2, "but not for ever");
}

#[tokio::test]
async fn what_goes_wrong_is_told_apart() {
    let Setting { engine, transit, _token, .. } = setting("token").await;
    assert_eq!(transit.new_key("absent").await.unwrap_err(), KeyError::NotFound("absent".into()));
    let calls = engine.calls.load(Ordering::Relaxed);
    for name in ["", "..", "a/b", "a?b", "k\u{e9}"] {
        assert_eq!(transit.new_key(name).await.unwrap_err(), KeyError::NotFound(name.into()), "{name}");
    }
    assert_eq!(engine.calls.load(Ordering::Relaxed), calls, "what is no name is not asked for");
    let refused = transit.known_key("k", b"vault:v1:y").await.unwrap_err();
    assert!(matches!(&refused, KeyError::Refused(why) if why.contains("invalid ciphertext")), "{refused}");
    let table = [
        (503, r#"{"errors":["Vault is sealed"]}"#),
        (500, "x"),
        (200, "{}"),
        (200, r#"{"data":{"plaintext":"AAAA","ciphertext":"x"}}"#),
        (200, r#"{"data":{"plaintext":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}}"#),
    ];
    for says in table {
        *engine.says.lock() = Some(says);
        let error = transit.new_key("k").await.unwrap_err();
        assert!(matches!(error, KeyError::Unavailable(_)), "{says:?}: {error}");
        assert!(!error.to_string().contains("AAEC"));
    }
    let Setting { transit, _token, .. } = setting("another").await;
    assert!(matches!(transit.new_key("k").await, Err(KeyError::Refused(_))));
    let Setting { transit, .. } = setting("").await;
    assert!(matches!(transit.new_key("k").await, Err(KeyError::Unavailable(_))), "no token");
}

#[test]
fn addresses_are_checked() {
    for url in
        ["", "vault:8200", "ftp://vault", "https://", "/v1", "http://h:0", "http://h:x", "http://u:s@h", "http://h/?x"]
    {
        let options = TransitOptions {
            url: url.into(),
            mount: "transit".into(),
            token_file: "token".into(),
            namespace: None,
            ca: None,
            timeout: Duration::from_secs(1),
            cache: Duration::ZERO,
        };
        assert!(Transit::new(options, Arc::new(SystemClock)).is_err(), "{url}");
    }
}
