//! The metrics page, read.

/// A page of Prometheus samples.
#[derive(Clone, Debug)]
pub struct Metrics(String);

impl Metrics {
    /// Takes the text of the page.
    #[must_use]
    pub fn new(page: String) -> Self {
        Self(page)
    }

    /// Sum of the samples of `name` over all labels.
    ///
    /// # Panics
    /// When there is no such sample: a test that asks for a metric means one that exists.
    #[must_use]
    pub fn sum(&self, name: &str) -> f64 {
        let samples: Vec<f64> = self.0.lines().filter_map(|line| sample(line, name)).collect();
        assert!(!samples.is_empty(), "there is no metric {name}; the page:\n{}", self.0);
        samples.iter().sum()
    }
}

fn sample(line: &str, name: &str) -> Option<f64> {
    let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
    (labels.is_empty() || labels.starts_with('{')).then(|| value.parse().ok())?
}
