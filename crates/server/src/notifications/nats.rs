//! NATS: messages are published to a stream of JetStream, which says of each when it is stored.
//!
//! A publication to a stream is a request: the stream answers with the number that the message got, or with an error; where no stream keeps the
//! subject, the server says that nobody responds. A message's id is the header by which the stream leaves out what it has already. Source: NATS, ADR-1
//! (JetStream JSON API) and "JetStream model deep dive", message deduplication.
//!
//! A connection is used until the first thing that goes wrong on it. The courier makes the pauses between attempts, so the client makes none of its own.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, HeaderMap, RequestErrorKind, ServerAddr};
use futures::StreamExt;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::delivery::Message;
use crate::credentials::SecretKey;
use crate::fetch;

/// Longest time for a message to be stored, for a connection to one server, and half of that for one to any of them.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages on their way at a time; a document has 512 KiB of them.
const UNDER_WAY_MAX: usize = 256;
/// What a file of credentials holds, which a token does not.
const CREDENTIALS: &str = "-----BEGIN NATS USER JWT-----";

/// Publishes messages.
pub(super) struct Nats {
    servers: Vec<String>,
    subject: String,
    tls: bool,
    secret: Option<SecretKey>,
    patience: Duration,
    /// Once there is one.
    connection: Option<Connection>,
}

struct Connection {
    client: Client,
    trouble: Arc<Trouble>,
}

/// What went wrong on a connection, which is no good from then on.
#[derive(Default)]
struct Trouble {
    said: Mutex<Option<String>>,
    is_there: CancellationToken,
}

impl Trouble {
    fn note(&self, event: &Event) {
        let said = match event {
            Event::ServerError(error) => error.to_string(),
            Event::Disconnected | Event::Closed => "the connection was lost".to_owned(),
            _ => return,
        };
        self.said.lock().get_or_insert(said);
        self.is_there.cancel();
    }

    /// Ends when something goes wrong.
    async fn happens(&self) -> String {
        self.is_there.cancelled().await;
        self.said.lock().clone().unwrap_or_default()
    }
}

/// What a stream says of a message.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Refused { error: Refusal },
    Stored { stream: String },
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    description: String,
}

impl Nats {
    pub(super) fn new(servers: &[String], subject: &str, tls: bool, secret: Option<SecretKey>) -> Self {
        let (servers, subject) = (servers.to_vec(), subject.to_owned());
        Self { servers, subject, tls, secret, patience: PATIENCE, connection: None }
    }

    /// Publishes messages in their order; gives how many were stored, and why no more were.
    ///
    /// Where one is refused, those after it may have been stored: they are published again, and the stream knows their ids.
    pub(super) async fn send(&mut self, messages: &[Message]) -> (usize, Result<(), String>) {
        let usable = self.connection.take().filter(|connection| !connection.trouble.is_there.is_cancelled());
        let connection = match usable {
            Some(connection) => connection,
            None => match self.connect().await {
                Ok(connection) => connection,
                Err(error) => return (0, Err(error)),
            },
        };
        // They begin in their order: `buffered` polls them so for the first time, and then each hands its message to the connection, unless
        // tokio's budget made it wait for its next turn, behind others.
        let publications: Vec<_> = messages
            .iter()
            .map(|message| {
                let (client, subject) = (connection.client.clone(), self.subject.clone());
                tokio::task::unconstrained(publish(client, subject, message.clone(), self.patience))
            })
            .collect();
        let mut answers = futures::stream::iter(publications).buffered(UNDER_WAY_MAX);
        let mut stored = 0;
        loop {
            let outcome = tokio::select! {
                biased;
                answer = answers.next() => match answer {
                    Some(outcome) => outcome,
                    None => break,
                },
                said = connection.trouble.happens() => Err(said),
            };
            match outcome {
                Ok(()) => stored += 1,
                Err(error) => return (stored, Err(error)),
            }
        }
        self.connection = Some(connection);
        (stored, Ok(()))
    }

    async fn connect(&self) -> Result<Connection, String> {
        let servers: Vec<ServerAddr> = self
            .servers
            .iter()
            .map(|server| server.parse())
            .collect::<Result<_, _>>()
            .map_err(|error: std::io::Error| error.to_string())?;
        let trouble = Arc::new(Trouble::default());
        let noted = Arc::clone(&trouble);
        let options = ConnectOptions::new()
            .name("gabion")
            .require_tls(self.tls)
            .connection_timeout(self.patience)
            .request_timeout(None)
            // The secret goes to whom the operator names.
            .ignore_discovered_servers()
            // Once to each; the client of a lost connection ends with that, too.
            .max_reconnects(servers.len())
            .event_callback(move |event| {
                noted.note(&event);
                std::future::ready(())
            });
        // Where nobody is trusted, a server that wants TLS is not.
        let options = match fetch::trusting() {
            Ok(config) => options.tls_client_config((*config).clone()),
            Err(error) if self.tls => return Err(error),
            Err(_) => options,
        };
        let options = match self.secret.as_ref().map(SecretKey::expose) {
            // What is wrong with them is not said in words that could be theirs.
            Some(secret) if secret.contains(CREDENTIALS) => {
                // Only what ends with a line's end is read; that of the file was cut off.
                options.credentials(&format!("{secret}\n")).map_err(|_| "its credentials can not be read".to_owned())?
            }
            Some(secret) => match secret.split_once('\n') {
                Some((user, password)) => options.user_and_password(user.trim().to_owned(), password.trim().to_owned()),
                None => options.token(secret.to_owned()),
            },
            None => options,
        };
        match timeout(2 * self.patience, options.connect(servers)).await {
            Ok(Ok(client)) => Ok(Connection { client, trouble }),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no connection in time".to_owned()),
        }
    }
}

/// Ends when the message is stored.
async fn publish(client: Client, subject: String, message: Message, patience: Duration) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_MESSAGE_ID, message.id);
    let answer = match timeout(patience, client.request_with_headers(subject.clone(), headers, message.body)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
            return Err(format!("no stream keeps the subject {subject}"));
        }
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("no answer in time".to_owned()),
    };
    match serde_json::from_slice(&answer.payload) {
        Ok(Answer::Stored { stream }) if !stream.is_empty() => Ok(()),
        Ok(Answer::Refused { error }) => Err(format!("the stream refuses: {}", error.description)),
        _ => Err(format!("what answers at the subject {subject} is no stream")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    use super::*;

    /// What a server does with a message.
    #[derive(Clone, Copy, Debug)]
    enum Does {
        Stores,
        /// Says so to the one who asked.
        Answers(&'static str),
        HasNoStream,
        /// Says so on the connection, and gives no answer.
        Complains,
        HangsUp,
        Nothing,
    }

    /// A server that does one thing with each message, as long as the list goes, and says what it was told.
    struct Server {
        subject: String,
        address: String,
        told: mpsc::UnboundedReceiver<String>,
    }

    impl Server {
        /// `secret` is what has to be in what a client says of itself.
        async fn start(secret: &'static str, does: Vec<Does>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("nats://{}", listener.local_addr().unwrap());
            let (tell, told) = mpsc::unbounded_channel();
            let does = Arc::new(Mutex::new(does.into_iter()));
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(Self::serve(stream, secret, Arc::clone(&does), tell.clone()));
                }
            });
            Self { subject: "s3.events".into(), address, told }
        }

        async fn serve(
            stream: TcpStream,
            secret: &'static str,
            does: Arc<Mutex<std::vec::IntoIter<Does>>>,
            tell: mpsc::UnboundedSender<String>,
        ) {
            let mut stream = BufReader::new(stream);
            let info = "INFO {\"server_id\":\"S\",\"version\":\"2.10.0\",\"headers\":true,\"max_payload\":1048576,\"proto\":1,\"nonce\":\"n\"}\r\n";
            stream.write_all(info.as_bytes()).await.unwrap();
            let (mut line, mut sid) = (String::new(), String::new());
            while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
                let words: Vec<&str> = line.split_whitespace().collect();
                let answer = match words.as_slice() {
                    ["CONNECT", ..] => {
                        let _ = tell.send(line.trim().to_owned());
                        if !line.contains(secret) {
                            stream.write_all(b"-ERR 'Authorization Violation'\r\n").await.unwrap();
                            return;
                        }
                        String::new()
                    }
                    ["PING"] => "PONG\r\n".to_owned(),
                    ["SUB", _, id] => {
                        sid = (*id).to_owned();
                        String::new()
                    }
                    ["HPUB", subject, reply, head, all] => {
                        assert_eq!(*subject, "s3.events");
                        let (head, all): (usize, usize) = (head.parse().unwrap(), all.parse().unwrap());
                        let mut message = vec![0; all + 2];
                        stream.read_exact(&mut message).await.unwrap();
                        let _ = tell.send(String::from_utf8(message[..head].to_vec()).unwrap().replace("\r\n", "|"));
                        let answer = |text: &str| format!("MSG {reply} {sid} {}\r\n{text}\r\n", text.len());
                        let next = does.lock().next();
                        match next.unwrap_or(Does::Stores) {
                            Does::Stores => answer("{\"stream\":\"S\",\"seq\":1}"),
                            Does::Answers(text) => answer(text),
                            Does::HasNoStream => format!("HMSG {reply} {sid} 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"),
                            Does::Complains => {
                                "-ERR 'Permissions Violation for Publish to \"s3.events\"'\r\n".to_owned()
                            }
                            Does::HangsUp => return,
                            Does::Nothing => String::new(),
                        }
                    }
                    _ => String::new(),
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                line.clear();
            }
        }

        fn publisher(&self, secret: Option<&str>) -> Nats {
            Nats::new(std::slice::from_ref(&self.address), &self.subject, false, secret.map(SecretKey::new))
        }

        /// What was told since the last time.
        fn told(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.told.try_recv().ok()).collect()
        }
    }

    fn messages(count: usize) -> Vec<Message> {
        (0..count).map(|at| Message { id: format!("id-{at}"), body: "{}".into(), events: 1 }).collect()
    }

    #[tokio::test]
    async fn messages_are_stored_in_their_order_over_one_connection() {
        let mut server = Server::start("", vec![]).await;
        let mut nats = server.publisher(None);
        assert_eq!(nats.send(&messages(600)).await, (600, Ok(())));
        assert_eq!(nats.send(&messages(1)).await, (1, Ok(())));
        let told = server.told();
        let ids = told.iter().filter_map(|text| text.split("Nats-Msg-Id:").nth(1)?.split('|').next().map(str::trim));
        let expected: Vec<String> = (0..600).chain(0..1).map(|at| format!("id-{at}")).collect();
        assert_eq!(ids.collect::<Vec<_>>(), expected);
        assert_eq!(told.iter().filter(|text| text.starts_with("CONNECT")).count(), 1);
    }

    #[tokio::test]
    async fn what_is_not_stored_is_a_failure_and_the_next_attempt_succeeds() {
        let refused = "{\"type\":\"x\",\"error\":{\"code\":503,\"err_code\":10077,\"description\":\"maximum messages exceeded\"}}";
        for (does, expected) in [
            (Does::HasNoStream, "no stream keeps the subject s3.events"),
            (Does::Answers(refused), "the stream refuses: maximum messages exceeded"),
            (Does::Answers("thanks"), "what answers at the subject s3.events is no stream"),
            (Does::Answers("{\"stream\":\"\"}"), "what answers at the subject s3.events is no stream"),
            (Does::Complains, "nats: Permissions Violation for Publish to \"s3.events\""),
            (Does::HangsUp, "the connection was lost"),
        ] {
            let server = Server::start("", vec![Does::Stores, does]).await;
            let mut nats = server.publisher(None);
            let (stored, outcome) = nats.send(&messages(3)).await;
            let error = outcome.unwrap_err();
            assert!(error.to_lowercase().contains(&expected.to_lowercase()), "{does:?}: {error}");
            // What ends the connection may come before the answer that was on its way.
            assert!(
                stored == 1 || matches!(does, Does::Complains | Does::HangsUp) && stored == 0,
                "{does:?}: {stored}"
            );
            assert_eq!(nats.send(&messages(3)).await, (3, Ok(())), "{does:?}");
        }
    }

    #[tokio::test]
    async fn silence_is_a_failure() {
        let server = Server::start("", vec![Does::Nothing]).await;
        let mut nats = server.publisher(None);
        nats.patience = Duration::from_millis(200);
        assert_eq!(nats.send(&messages(1)).await, (0, Err("no answer in time".into())));
        nats.patience = PATIENCE;
        assert_eq!(nats.send(&messages(1)).await, (1, Ok(())));
        // Nobody says anything there.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("nats://{}", listener.local_addr().unwrap());
        let mut nats = Nats::new(&[server], "x", false, None);
        nats.patience = Duration::from_millis(200);
        assert!(nats.send(&messages(1)).await.1.is_err());
    }

    #[tokio::test]
    async fn a_connection_that_was_lost_meanwhile_is_made_anew() {
        let server = Server::start("", vec![Does::Stores, Does::HangsUp]).await;
        let mut nats = server.publisher(None);
        assert_eq!(nats.send(&messages(1)).await, (1, Ok(())));
        let trouble = Arc::clone(&nats.connection.as_ref().unwrap().trouble);
        // Hangs up.
        let client = nats.connection.as_ref().unwrap().client.clone();
        let mut headers = HeaderMap::new();
        headers.insert("a", "b");
        client.publish_with_reply_and_headers("s3.events", "y", headers, "".into()).await.unwrap();
        timeout(PATIENCE, trouble.happens()).await.unwrap();
        drop(client);
        assert_eq!(nats.send(&messages(1)).await, (1, Ok(())));
    }

    #[tokio::test]
    async fn a_secret_is_a_token_a_user_and_a_password_or_credentials() {
        // The key is 0, 1, 2 and so on.
        let credentials = "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\nSUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y\n------END USER NKEY SEED------";
        for (secret, said) in [
            ("sesame", &[("auth_token", "sesame")][..]),
            ("ali\nsesame", &[("user", "ali"), ("pass", "sesame")]),
            ("ali\r\nsesame", &[("user", "ali"), ("pass", "sesame")]),
            (credentials, &[("jwt", "eyJ0.eyJq.c2ln")]),
        ] {
            let mut server = Server::start("", vec![]).await;
            assert_eq!(server.publisher(Some(secret)).send(&messages(1)).await, (1, Ok(())));
            let told = server.told();
            let hello: Value = serde_json::from_str(told[0].strip_prefix("CONNECT ").unwrap()).unwrap();
            for (name, value) in said {
                assert_eq!(hello[name], *value, "{hello}");
            }
            assert_eq!(hello["sig"].is_string(), secret == credentials);
        }
    }

    #[tokio::test]
    async fn who_is_not_known_is_told_so_without_the_secret() {
        let server = Server::start("sesame", vec![]).await;
        for secret in [None, Some("hushhush"), Some("ali\nhushhush"), Some("-----BEGIN NATS USER JWT-----\nhushhush")] {
            let (stored, outcome) = server.publisher(secret).send(&messages(1)).await;
            let error = outcome.unwrap_err();
            assert!(stored == 0 && (error.contains("authorization") || error.contains("credentials")), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
        assert_eq!(server.publisher(Some("sesame")).send(&messages(1)).await, (1, Ok(())));
    }

    #[tokio::test]
    async fn a_server_without_tls_is_none_where_tls_is_wanted() {
        let server = Server::start("", vec![]).await;
        let mut nats = Nats::new(&[server.address.replace("nats:", "tls:")], "s3.events", true, None);
        nats.patience = Duration::from_secs(1);
        assert!(nats.send(&messages(1)).await.1.is_err());
    }
}
