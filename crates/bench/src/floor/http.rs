//! The floor of HTTP: a server that reads bodies and forgets them, and answers with bytes that it has at hand.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Read, Write, stdin, stdout},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::Context;
use gabion_platform::unpace_loopback;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, body::Bytes, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{FloorArgs, Layer, Measurement, Round, Subject, endpoint::Endpoint};
use crate::workload::Action;

/// Most bytes that hyper buffers of a connection, in each direction.
const BUFFER_BYTES: usize = 256 * 1024;

/// Says to a process that it is the server, and what its answers hold.
const VARIABLE: &str = "GABION_BENCH_HTTP_FLOOR";

/// Most memory that answers take together, in bytes; a server has it from its start to its end.
const BODIES_BYTES_MAX: u64 = 1 << 30;

/// What answers hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bodies {
    /// All the same bytes: the least that HTTP can cost, from caches to caches.
    One,
    /// Those of each object lie in memory of their own, as those of a server with storage must.
    Each,
}

impl Bodies {
    const ALL: [Self; 2] = [Bodies::One, Bodies::Each];

    fn key(self) -> &'static str {
        match self {
            Bodies::One => "one",
            Bodies::Each => "each",
        }
    }

    /// The answers of a server.
    fn make(self, args: &FloorArgs) -> anyhow::Result<Vec<Bytes>> {
        let size = usize::try_from(args.size).context("a size beyond the memory of this machine")?;
        let count = match self {
            Bodies::One => 1,
            Bodies::Each => args.objects().min(BODIES_BYTES_MAX / args.size).max(1),
        };
        Ok((0..count).map(|_| Bytes::from(vec![0x5a; size])).collect())
    }
}

/// The server, and the client that drives it. The server is a process of its own, as one with storage is: where it lies in the memory of the client, changing from one to the
/// other costs less.
pub(super) struct HttpFloor {
    client: Endpoint,
    server: Child,
    bodies: Bodies,
}

impl HttpFloor {
    /// Starts the server on a port of the loopback interface.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start(args: &FloorArgs, bodies: Bodies) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut server = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, bodies.key())
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
            .and_then(|_| Endpoint::without_storage(args, &format!("http://{}", address.trim_end()), server.id()));
        match client {
            Ok(client) => Ok(Self { client, server, bodies }),
            Err(error) => {
                stop(&mut server);
                Err(error)
            }
        }
    }
}

impl Drop for HttpFloor {
    fn drop(&mut self) {
        stop(&mut self.server);
    }
}

/// Both fail only if it has ended.
fn stop(server: &mut Child) {
    let _ = server.kill();
    let _ = server.wait();
}

/// Whether this process is the server: then it has served until its parent ended.
///
/// # Errors
/// When there is no port to listen on.
pub(super) fn was_server(args: &FloorArgs) -> anyhow::Result<bool> {
    let Some(key) = std::env::var_os(VARIABLE) else { return Ok(false) };
    let bodies = Bodies::ALL.into_iter().find(|bodies| *bodies.key() == *key);
    let bodies = bodies.with_context(|| format!("{VARIABLE} is set, and not by this program: unset it"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads())
        .enable_all()
        .build()
        .context("starting the HTTP server of the floor")?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("listening on a port of loopback")?;
    unpace_loopback(&listener, listener.local_addr()?.ip());
    let mut out = stdout().lock();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    runtime.spawn(serve(listener, bodies.make(args)?.into()));
    // Nothing is said to it: its input ends with its parent.
    stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(true)
}

impl Subject for HttpFloor {
    fn name(&self) -> String {
        let which = if self.bodies == Bodies::Each { ", bytes of each object" } else { "" };
        format!("HTTP without storage{which}")
    }

    fn layer(&self) -> Layer {
        match self.bodies {
            Bodies::One => Layer::Http,
            Bodies::Each => Layer::HttpEach,
        }
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        // Other answers hold nothing.
        if self.bodies == Bodies::Each && measurement.action != Action::Get {
            return Ok(None);
        }
        self.client.measure(measurement)
    }
}

async fn serve(listener: TcpListener, bodies: Arc<[Bytes]>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A socket on which that fails will fail its first request.
        let _ = stream.set_nodelay(true);
        let bodies = Arc::clone(&bodies);
        let service = service_fn(move |request| answer(request, Arc::clone(&bodies)));
        let connection =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).serve_connection(TokioIo::new(stream), service);
        // The client tells what went wrong.
        tokio::spawn(async move { connection.await.ok() });
    }
}

async fn answer(request: Request<Incoming>, bodies: Arc<[Bytes]>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    match *request.method() {
        Method::GET => *response.body_mut() = Full::new(body_of(request.uri().path(), &bodies)),
        Method::HEAD => {
            response.headers_mut().insert(header::CONTENT_LENGTH, bodies[0].len().into());
        }
        _ => {
            let mut incoming = request.into_body();
            while let Some(Ok(_)) = incoming.frame().await {}
        }
    }
    Ok(response)
}

/// The body of the object that a request names: the one of its number, with which the keys of objects that are read end.
fn body_of(path: &str, bodies: &[Bytes]) -> Bytes {
    let digits = path.len() - path.bytes().rev().take_while(u8::is_ascii_digit).count();
    let number: usize = path[digits..].parse().unwrap_or(0);
    bodies[number % bodies.len()].clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_that_is_read_has_a_body_of_its_own() {
        let bodies: Vec<Bytes> = (0..20_u8).map(|number| Bytes::from(vec![number; 4])).collect();
        for number in 0..20_u8 {
            assert_eq!(body_of(&format!("/bucket/floor/run7/{number:010}"), &bodies), bodies[usize::from(number)]);
        }
        assert_eq!(body_of("/bucket/floor/run/0000000021", &bodies), bodies[1], "there may be more objects");
        assert_eq!(body_of("/bucket", &bodies), bodies[0]);
        assert_eq!(body_of("/99999999999999999999999999", &bodies), bodies[0]);
    }
}
