//! The floor of HTTP: a server that reads bodies and forgets them, and answers with bytes that it has at hand.

use std::convert::Infallible;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, body::Bytes, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime::Runtime};

use super::{FloorArgs, Layer, Measurement, Subject, endpoint::Endpoint};
use crate::stats::Stats;

/// Read buffer of a connection, in bytes; as the server has it.
const BUFFER_BYTES: usize = 256 * 1024;

/// The server, and the client that drives it.
pub(super) struct HttpFloor {
    client: Endpoint,
    /// Serves until it is dropped.
    _server: Runtime,
}

impl HttpFloor {
    /// Starts the server on a port of the loopback interface.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start(args: &FloorArgs) -> anyhow::Result<Self> {
        let server = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(args.threads())
            .enable_all()
            .build()
            .context("starting the HTTP server of the floor")?;
        let listener = server.block_on(TcpListener::bind("127.0.0.1:0")).context("listening on a port of loopback")?;
        let address = listener.local_addr()?;
        let size = usize::try_from(args.size).context("a size beyond the memory of this machine")?;
        let body = Bytes::from(vec![0x5a; size]);
        server.spawn(serve(listener, body));
        let client = Endpoint::without_storage(args, &format!("http://{address}"))?;
        Ok(Self { client, _server: server })
    }
}

impl Subject for HttpFloor {
    fn name(&self) -> String {
        "HTTP without storage".to_owned()
    }

    fn layer(&self) -> Layer {
        Layer::Http
    }

    fn measure(&mut self, measurement: Measurement) -> anyhow::Result<Option<Stats>> {
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
