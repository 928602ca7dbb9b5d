//! One GET over plain HTTP/1.1, for health checks and metrics.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, bail};

/// The body of a successful answer.
///
/// # Errors
/// When nobody listens, or the status is not 200.
pub(crate) fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    if head.split_whitespace().nth(1) != Some("200") {
        bail!("{path}: {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// Sum over all labels of the samples of a Prometheus counter; `filter` must occur in the labels.
pub(crate) fn sample_sum(metrics: &str, name: &str, filter: &str) -> f64 {
    metrics
        .lines()
        .filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            let exact = labels.is_empty() || labels.starts_with('{');
            (exact && labels.contains(filter)).then(|| value.parse::<f64>().ok())?
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_add_up_over_labels() {
        let metrics = "# TYPE a counter\na_total{t=\"1\",k=\"x\"} 2\na_total{t=\"2\",k=\"y\"} 3\na_total_more 9\nb 4\n";
        for (name, filter, sum) in [("a_total", "", 5.0), ("a_total", "k=\"x\"", 2.0), ("b", "", 4.0), ("c", "", 0.0)] {
            assert!((sample_sum(metrics, name, filter) - sum).abs() < 1e-9, "{name} {filter}");
        }
    }
}
