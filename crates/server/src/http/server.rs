//! Accepting connections, and stopping.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gabion_platform::{PagePipe, unpace_loopback};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{self, Shared};
use super::{Handler, HttpLimits, Observer};
use crate::tls::ReloadingTls;

/// Where connections come in.
#[derive(Debug)]
pub struct Listener {
    /// The bound socket.
    pub tcp: TcpListener,
    /// Certificate and key, if it speaks TLS.
    pub tls: Option<Arc<ReloadingTls>>,
}

/// A server of one handler on any number of listeners.
pub struct HttpServer<H> {
    /// What answers.
    pub handler: H,
    /// What clients may do.
    pub limits: HttpLimits,
    /// Where requests are reported; the admin port reports none.
    pub observer: Option<Observer>,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Connections that were still busy at the end of the drain time and were cut.
    pub cut: usize,
}

/// How long accepting rests when the system has no descriptor or memory for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

impl<H: Handler> HttpServer<H> {
    /// Serves until `stop` resolves, then finishes what is in flight for up to [`HttpLimits::drain_timeout`] and closes.
    /// When it returns, no connection is left.
    pub async fn serve(self, listeners: Vec<Listener>, stop: impl Future<Output = ()>) -> Drained {
        self.serve_by(true, listeners, stop).await
    }

    /// Serves with hyper alone, or what is plain without it.
    pub(super) async fn serve_by(
        self,
        direct: bool,
        listeners: Vec<Listener>,
        stop: impl Future<Output = ()>,
    ) -> Drained {
        // Found out before a client waits for it.
        let _ = PagePipe::is_supported();
        let (closing, cut) = (CancellationToken::new(), CancellationToken::new());
        let drain_timeout = self.limits.drain_timeout;
        let permits = Arc::new(Semaphore::new(self.limits.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let shared = Arc::new(Shared {
            http: connection::builder(&self.limits),
            http1: connection::builder(&self.limits).http1_only(),
            handler: self.handler,
            limits: self.limits,
            observer: self.observer,
            closing: closing.clone(),
            cut: cut.clone(),
            direct,
        });
        let connections = TaskTracker::new();
        let accepting = TaskTracker::new();
        for listener in listeners {
            if let Ok(address) = listener.tcp.local_addr() {
                unpace_loopback(&listener.tcp, address.ip());
            }
            let accept = accept(listener, Arc::clone(&shared), Arc::clone(&permits), connections.clone());
            accepting.spawn(accept);
        }
        stop.await;
        closing.cancel();
        accepting.close();
        accepting.wait().await;
        connections.close();
        if tokio::time::timeout(drain_timeout, connections.wait()).await.is_ok() {
            return Drained::default();
        }
        let left = connections.len();
        cut.cancel();
        connections.wait().await;
        Drained { cut: left }
    }
}

/// Accepts until the server closes. A connection beyond the limit waits here for its turn; those behind it wait in the
/// kernel's backlog.
async fn accept<H: Handler>(
    listener: Listener,
    shared: Arc<Shared<H>>,
    permits: Arc<Semaphore>,
    connections: TaskTracker,
) {
    loop {
        let next = async {
            let (stream, address) = next_connection(&listener.tcp).await;
            let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
            (stream, address, permit)
        };
        let (stream, address, permit) = tokio::select! {
            next = next => next,
            () = shared.closing.cancelled() => return,
        };
        let serving = connection::run(Arc::clone(&shared), stream, address, listener.tls.clone());
        connections.spawn(async move {
            serving.await;
            drop(permit);
        });
    }
}

async fn next_connection(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // The client was faster; the next one may be waiting already.
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "can not accept connections; raise the limit of open files (LimitNOFILE) if they ran out");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
