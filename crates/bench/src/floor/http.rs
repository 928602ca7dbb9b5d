//! The floor of HTTP: a server that reads bodies and forgets them, and answers with bytes that it has at hand.

use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Read, Write, stdin, stdout},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use anyhow::Context;
use gabion_platform::unpace_loopback;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, body::Bytes, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::{FloorArgs, Layer, Measurement, Round, Subject, endpoint::Endpoint};

/// Most bytes that hyper buffers of a connection, in each direction.
const BUFFER_BYTES: usize = 256 * 1024;

/// Says to a process that it is the server.
const VARIABLE: &str = "GABION_BENCH_HTTP_FLOOR";

/// The server, and the client that drives it. The server is a process of its own, as one with storage is: where it lies in the memory of the client, changing from one to the
/// other costs less.
pub(super) struct HttpFloor {
    client: Endpoint,
    server: Child,
}

impl HttpFloor {
    /// Starts the server on a port of the loopback interface.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start(args: &FloorArgs) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut server = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, "1")
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
            Ok(client) => Ok(Self { client, server }),
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
    if std::env::var_os(VARIABLE).is_none() {
        return Ok(false);
    }
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
    let size = usize::try_from(args.size).context("a size beyond the memory of this machine")?;
    runtime.spawn(serve(listener, Bytes::from(vec![0x5a; size])));
    // Nothing is said to it: its input ends with its parent.
    stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(true)
}

impl Subject for HttpFloor {
    fn name(&self) -> String {
        "HTTP without storage".to_owned()
    }

    fn layer(&self) -> Layer {
        Layer::Http
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Round>> {
        self.client.measure(measurement)
    }
}

async fn serve(listener: TcpListener, body: Bytes) {
    while let Ok((stream, _)) = listener.accept().await {
        // A socket on which that fails will fail its first request.
        let _ = stream.set_nodelay(true);
        let body = body.clone();
        let service = service_fn(move |request| answer(request, body.clone()));
        let connection =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).serve_connection(TokioIo::new(stream), service);
        // The client tells what went wrong.
        tokio::spawn(async move { connection.await.ok() });
    }
}

async fn answer(request: Request<Incoming>, body: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::default());
    match *request.method() {
        Method::GET => *response.body_mut() = Full::new(body),
        Method::HEAD => {
            response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
        }
        _ => {
            let mut incoming = request.into_body();
            while let Some(Ok(_)) = incoming.frame().await {}
        }
    }
    Ok(response)
}
