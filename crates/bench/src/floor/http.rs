//! The floors of HTTP: a server that reads bodies and forgets them, and answers with bytes that it has at hand; and one that has the log or files, but nothing else, behind it.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Read, Write, stderr, stdin, stdout},
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    sync::{Arc, Once},
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use gabion_platform::unpace_loopback;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{
    FloorArgs, Layer, Measurement, Round, Subject,
    behind::{Behind, Storage},
    endpoint::Endpoint,
    place::Place,
    runtime, settle,
};
use crate::program::own_program;

/// Most bytes that hyper buffers of a connection, in each direction.
const BUFFER_BYTES: usize = 256 * 1024;

/// Says to a process that it is the server, and what lies behind it.
const VARIABLE: &str = "GABION_BENCH_HTTP_FLOOR";

/// What went wrong is said once.
static FIRST_ERROR: Once = Once::new();

/// A running server, and the client that drives it. The server is a process of its own, as one with storage is: where it lies in the memory of the client, changing from one to the
/// other costs less.
struct Running {
    client: Endpoint,
    server: Child,
}

impl Running {
    /// Starts the server on a port of the loopback interface.
    fn start(args: &FloorArgs, behind: Behind) -> anyhow::Result<Self> {
        let mut server = own_program()
            .env(VARIABLE, behind.key())
            // What stops the client at the terminal is not to stop the server under it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the HTTP server of the floor")?;
        let mut address = String::new();
        let said = server.stdout.take().context("its output is a pipe")?;
        let client = BufReader::new(said)
            .read_line(&mut address)
            .context("listening to the HTTP server of the floor")
            .and_then(|read| {
                ensure!(read > 0, "the HTTP server of the floor did not start; it says above why");
                Ok(())
            })
            .and_then(|()| Endpoint::of_floor(args, &format!("http://{}", address.trim_end()), server.id()));
        match client {
            Ok(client) => Ok(Self { client, server }),
            Err(error) => {
                stop(&mut server);
                Err(error)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        stop(&mut self.server);
    }
}

/// Has it end, and waits for that: it removes what it wrote. Both fail only if it has ended.
fn stop(server: &mut Child) {
    drop(server.stdin.take());
    let _ = server.wait();
}

/// A server of HTTP, with or without something behind it.
pub(super) struct HttpFloor {
    args: FloorArgs,
    behind: Behind,
    /// One that stores is begun anew for each measurement, and has its room for so long.
    running: Option<Running>,
}

impl HttpFloor {
    /// # Errors
    /// When there is no port to listen on.
    pub(super) fn new(args: &FloorArgs, behind: Behind) -> anyhow::Result<Self> {
        let running = if behind.stores() { None } else { Some(Running::start(args, behind)?) };
        Ok(Self { args: args.clone(), behind, running })
    }
}

impl Subject for HttpFloor {
    fn name(&self) -> String {
        match self.behind {
            Behind::One => "HTTP without storage".to_owned(),
            Behind::Each => "HTTP without storage, bytes of each object".to_owned(),
            Behind::Log(durability) => format!("HTTP with the log behind it ({durability})"),
            Behind::Files(durability) => format!("HTTP with files behind it ({durability})"),
        }
    }

    fn layer(&self) -> Layer {
        match self.behind {
            Behind::One => Layer::Http,
            Behind::Each => Layer::HttpEach,
            Behind::Log(durability) => Layer::HttpLog(durability),
            Behind::Files(durability) => Layer::HttpFiles(durability),
        }
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        if !self.behind.has(measurement.action, measurement.size_bytes) {
            return Ok(None);
        }
        match &mut self.running {
            Some(running) => running.client.measure(measurement),
            None => {
                let mut running = Running::start(&self.args, self.behind)?;
                settle(&self.args)?;
                running.client.measure(measurement)
            }
        }
    }
}

/// Whether this process is the server: then it has served until its parent wanted it no more, or ended.
///
/// # Errors
/// When there is no port to listen on, or a target can not be used.
pub(super) fn was_server(args: &FloorArgs) -> anyhow::Result<bool> {
    let Some(key) = std::env::var_os(VARIABLE) else { return Ok(false) };
    let behind = Behind::ALL.into_iter().find(|behind| *behind.key() == *key);
    let behind = behind.with_context(|| format!("{VARIABLE} is set, and not by this program: unset it"))?;
    // Goes last: what it holds is in use until the runtime ends.
    let place = behind.stores().then(|| Place::make(args, behind.key())).transpose()?;
    let runtime = runtime()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("listening on a port of loopback")?;
    unpace_loopback(&listener, listener.local_addr()?.ip());
    let storage = runtime.block_on(Storage::make(args, behind, place.as_ref()))?;
    let mut out = stdout().lock();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    runtime.spawn(serve(listener, Arc::new(storage)));
    // Nothing is said to it: its input ends when its parent closes it, or ends.
    stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(true)
}

async fn serve(listener: TcpListener, storage: Arc<Storage>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A socket on which that fails will fail its first request.
        let _ = stream.set_nodelay(true);
        let storage = Arc::clone(&storage);
        let service = service_fn(move |request| {
            let storage = Arc::clone(&storage);
            async move { answer(request, &storage).await }
        });
        let connection =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).serve_connection(TokioIo::new(stream), service);
        // The client tells what went wrong.
        tokio::spawn(async move { connection.await.ok() });
    }
}

async fn answer(request: Request<Incoming>, storage: &Storage) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    match *request.method() {
        Method::GET => *response.body_mut() = Full::new(storage.answer_to(request.uri())),
        Method::HEAD => {
            let body = storage.answer_to(request.uri());
            response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
        }
        Method::DELETE => *response.status_mut() = StatusCode::NO_CONTENT,
        _ => {
            // Of a body that does not come whole, the client's connection is gone.
            if let Some(body) = received(request.into_body(), storage.wants_bodies()).await
                && let Err(error) = storage.put(body).await
            {
                // The table counts the others.
                FIRST_ERROR.call_once(|| {
                    let _ = writeln!(stderr(), "gabion: the floor of HTTP can not store what it is given: {error:#}");
                });
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
    }
    Ok(response)
}

/// The body, of which nothing is kept where it is not wanted; `None` if it does not come whole.
async fn received(mut body: Incoming, wanted: bool) -> Option<Vec<Bytes>> {
    let mut parts = Vec::new();
    while let Some(frame) = body.frame().await {
        parts.extend(frame.ok()?.into_data().ok().filter(|_| wanted));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{floor::cli::tests::args, workload::Action};

    #[test]
    fn one_without_storage_has_all_operations() {
        let args = args(&["--objects", "1500", "-c", "2"]);
        let server = runtime().unwrap();
        let listener = server.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let storage = server.block_on(Storage::make(&args, Behind::One, None)).unwrap();
        server.spawn(serve(listener, Arc::new(storage)));
        let mut client = Endpoint::of_floor(&args, &url, std::process::id()).unwrap();
        for action in [Action::Put, Action::Get, Action::Stat, Action::Delete, Action::List] {
            let (warmup, duration) = (Duration::ZERO, Duration::from_millis(20));
            let measurement = Measurement { action, size_bytes: args.size, concurrency: 2, warmup, duration };
            let stats = client.measure(measurement).unwrap().unwrap().stats;
            let (succeeded, failed) = stats.counts();
            assert!(succeeded > 0 && failed == 0, "{action:?}");
            let series = &stats.series[&action.into()];
            assert_eq!(series.entries, if action == Action::List { 1000 * series.operations() } else { 0 });
        }
    }
}
