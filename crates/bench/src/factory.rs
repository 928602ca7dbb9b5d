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

/// Least time that a request has which is not measured.
const PATIENT_TIMEOUT: Duration = Duration::from_secs(60);

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

    /// The number of the endpoint that this worker asks.
    fn endpoint_of(&self, worker: usize) -> usize {
        worker % self.endpoints.len()
    }

    /// The client of this worker.
    pub(crate) fn client(&self, worker: usize) -> Client {
        let endpoint = Arc::clone(&self.endpoints[self.endpoint_of(worker)]);
        Client::new(Connection::new(endpoint, self.tls.clone()), self.identity.clone(), &self.bucket)
    }

    pub(crate) fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Of what is measured.
    pub(crate) fn limit(&self) -> Limit {
        Limit::new(self.timeout)
    }

    /// Of what removes what was written.
    pub(crate) fn cleaning_limit(&self) -> Limit {
        Limit::of_cleaning(self.timeout.max(PATIENT_TIMEOUT))
    }

    /// Of what prepares a measurement: how long what is measured may take says nothing of that.
    pub(crate) fn patient_limit(&self) -> Limit {
        Limit::new(self.timeout.max(PATIENT_TIMEOUT))
    }

    /// One that measures.
    pub(crate) fn worker(&self, number: usize) -> Worker {
        Worker::new(number, self.endpoint_of(number), self.client(number), self.limit())
    }

    /// One that prepares.
    pub(crate) fn patient_worker(&self, number: usize) -> Worker {
        Worker::new(number, self.endpoint_of(number), self.client(number), self.patient_limit())
    }
}
