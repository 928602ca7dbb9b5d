//! Makes clients and workers: each with a connection to its endpoint.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::TlsConnector;

use crate::{
    cli::AccessArgs,
    credentials::identity,
    http::{Connection, Endpoint, Trust},
    limit::Limit,
    s3::Client,
    sign::Identity,
    workload::Worker,
};

/// Endpoints and credentials.
pub(crate) struct Factory {
    endpoints: Vec<Arc<Endpoint>>,
    tls: Option<TlsConnector>,
    timeout: Duration,
    identity: Identity,
    bucket: String,
}

impl Factory {
    /// # Errors
    /// When an endpoint is no URL, credentials are missing, or there is nobody to trust.
    pub(crate) fn new(args: &AccessArgs, endpoints: &[String], bucket: &str) -> anyhow::Result<Self> {
        let endpoints =
            endpoints.iter().map(|url| Endpoint::parse(url).map(Arc::new)).collect::<anyhow::Result<Vec<_>>>()?;
        let secure = endpoints.iter().any(|endpoint| endpoint.tls_name.is_some());
        let trust = Trust { ca: args.ca.clone(), insecure: args.insecure };
        Ok(Self {
            tls: if secure { Some(trust.connector()?) } else { None },
            endpoints,
            timeout: args.timeout,
            identity: identity(args)?,
            bucket: bucket.to_owned(),
        })
    }

    /// The client of this worker.
    pub(crate) fn client(&self, worker: usize) -> Client {
        let endpoint = Arc::clone(&self.endpoints[worker % self.endpoints.len()]);
        Client::new(Connection::new(endpoint, self.tls.clone()), self.identity.clone(), &self.bucket)
    }

    pub(crate) fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::new(self.timeout)
    }

    pub(crate) fn worker(&self, number: usize) -> Worker {
        Worker::new(number, self.client(number), self.limit())
    }
}
