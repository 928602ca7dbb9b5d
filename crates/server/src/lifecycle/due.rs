//! What rules mean at a moment, for one object, upload or version.

use super::rules::{Expiration, Filter, LifecycleRules, Rule};

/// A day in milliseconds.
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How long the days of rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Days {
    /// As long as they are, and they end at midnight UTC.
    Real,
    /// So many milliseconds: for tests.
    Short(u64),
}

impl Days {
    /// The moment at which `days` have passed since `unix_ms`: on AWS, the first midnight after it.
    pub(crate) fn after(self, unix_ms: u64, days: u32) -> u64 {
        match self {
            Days::Real => {
                let moment_ms = unix_ms.saturating_add(u64::from(days).saturating_mul(DAY_MS));
                (moment_ms / DAY_MS).saturating_add(1).saturating_mul(DAY_MS)
            }
            Days::Short(day_ms) => unix_ms.saturating_add(u64::from(days).saturating_mul(day_ms)),
        }
    }
}

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a str,
    pub(crate) size: u64,
    pub(crate) tags: &'a [(String, String)],
}

impl Filter {
    /// Whether it lets a subject through whose tags are not known yet.
    pub(crate) fn may_match(&self, key: &str, size: u64) -> bool {
        key.starts_with(self.prefix.as_str())
            && self.longer_than.is_none_or(|bytes| size > bytes)
            && self.shorter_than.is_none_or(|bytes| size < bytes)
    }

    pub(crate) fn matches(&self, subject: Subject<'_>) -> bool {
        self.may_match(subject.key, subject.size) && self.tags.iter().all(|tag| subject.tags.contains(tag))
    }
}

impl Rule {
    /// When a current object ends that was made at `modified_ms`, if this rule is about it.
    pub(crate) fn object_ends_ms(&self, modified_ms: u64, days: Days) -> Option<u64> {
        match self.expiration.filter(|_| self.is_enabled)? {
            Expiration::Days(count) => Some(days.after(modified_ms, count)),
            Expiration::Date(unix_ms) => Some(unix_ms),
            Expiration::LoneMarkers => None,
        }
    }

    /// Whether it ends delete markers behind which there is nothing.
    pub(crate) fn ends_lone_markers(&self) -> bool {
        matches!(self.expiration, Some(Expiration::LoneMarkers | Expiration::Days(_)))
    }

    /// When a delete marker ends that was made at `modified_ms` and behind which there is nothing, if this rule is about it.
    pub(crate) fn lone_marker_ends_ms(&self, modified_ms: u64, days: Days) -> Option<u64> {
        match self.expiration.filter(|_| self.is_enabled)? {
            Expiration::LoneMarkers => Some(modified_ms),
            Expiration::Days(count) => Some(days.after(modified_ms, count)),
            Expiration::Date(_) => None,
        }
    }

    /// When a version ends that is not current since `since_ms`, and newer than which there are `newer` others that are not, if this rule is
    /// about it.
    pub(crate) fn version_ends_ms(&self, since_ms: u64, newer: u32, days: Days) -> Option<u64> {
        let noncurrent = self.noncurrent.filter(|_| self.is_enabled)?;
        (newer >= noncurrent.newer).then(|| days.after(since_ms, noncurrent.days))
    }

    /// When an upload ends that was begun at `begun_ms`, if this rule is about it.
    pub(crate) fn upload_ends_ms(&self, begun_ms: u64, days: Days) -> Option<u64> {
        Some(days.after(begun_ms, self.abort_days.filter(|_| self.is_enabled)?))
    }
}

impl LifecycleRules {
    /// The rule by which a current object ends first, and when.
    pub(crate) fn object_ends(&self, subject: Subject<'_>, modified_ms: u64) -> Option<(u64, &str)> {
        let matching = self.rules.iter().filter(|rule| rule.filter.matches(subject));
        matching
            .filter_map(|rule| Some((rule.object_ends_ms(modified_ms, Days::Real)?, rule.id.as_str())))
            .min_by_key(|(ends_ms, _)| *ends_ms)
    }

    /// The rule by which an upload is aborted first, and when.
    pub(crate) fn upload_ends(&self, key: &str, begun_ms: u64) -> Option<(u64, &str)> {
        let matching = self.rules.iter().filter(|rule| key.starts_with(rule.filter.prefix.as_str()));
        matching
            .filter_map(|rule| Some((rule.upload_ends_ms(begun_ms, Days::Real)?, rule.id.as_str())))
            .min_by_key(|(ends_ms, _)| *ends_ms)
    }

    /// Prefixes below which something may be due, in order, none of them below another one.
    pub(crate) fn prefixes(&self, is_about: impl Fn(&Rule) -> bool) -> Vec<&str> {
        let about = self.rules.iter().filter(|rule| rule.is_enabled && is_about(rule));
        let mut prefixes: Vec<&str> = about.map(|rule| rule.filter.prefix.as_str()).collect();
        prefixes.sort_unstable();
        // In order, a prefix comes right before what begins with it.
        let mut kept: Vec<&str> = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            if kept.last().is_none_or(|last| !prefix.starts_with(last)) {
                kept.push(prefix);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::rules::LifecycleRules;

    #[test]
    fn days_end_at_midnight() {
        // AWS's example: 2014-01-15 10:30 and three days are 2014-01-19 00:00.
        assert_eq!(Days::Real.after(1_389_781_800_000, 3), 1_390_089_600_000);
        assert_eq!(Days::Real.after(0, 1), 2 * DAY_MS);
        assert_eq!(Days::Real.after(u64::MAX, 1), u64::MAX);
        assert_eq!(Days::Short(10_000).after(5, 3), 30_005);
    }

    fn rules(text: &str) -> LifecycleRules {
        let document = format!("<LifecycleConfiguration>{text}</LifecycleConfiguration>");
        LifecycleRules::parse(document.as_bytes()).unwrap().0
    }

    #[test]
    fn prefixes_are_walked_once() {
        let rule = |prefix: &str, id: usize| {
            format!(
                "<Rule><ID>{id}</ID><Status>Enabled</Status><Filter><Prefix>{prefix}</Prefix></Filter><Expiration><Days>1</Days></Expiration></Rule>"
            )
        };
        let of = |prefixes: &[&str]| {
            let text: String = prefixes.iter().enumerate().map(|(id, prefix)| rule(prefix, id)).collect();
            let rules = rules(&text);
            rules.prefixes(|rule| rule.expiration.is_some()).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&["b/", "a/x", "a/", "a/y", "a", "c"]), ["a", "b/", "c"]);
        assert_eq!(of(&["b", "", "c"]), [""]);
        assert!(rules(&rule("a", 1)).prefixes(|rule| rule.abort_days.is_some()).is_empty());
    }

    #[test]
    fn the_earliest_rule_that_matches_ends_an_object() {
        let rules = rules(
            "<Rule><ID>a</ID><Status>Enabled</Status><Filter><Prefix>logs/</Prefix></Filter><Expiration><Days>5</Days></Expiration></Rule>\
             <Rule><ID>b</ID><Status>Enabled</Status><Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>\
             <Expiration><Days>2</Days></Expiration></Rule>\
             <Rule><ID>c</ID><Status>Disabled</Status><Filter/><Expiration><Days>1</Days></Expiration></Rule>\
             <Rule><ID>d</ID><Status>Enabled</Status><Filter><ObjectSizeGreaterThan>100</ObjectSizeGreaterThan></Filter>\
             <Expiration><Date>1970-01-02T00:00:00Z</Date></Expiration></Rule>\
             <Rule><ID>e</ID><Status>Enabled</Status><Filter><Prefix>up/</Prefix></Filter><AbortIncompleteMultipartUpload>\
             <DaysAfterInitiation>3</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>",
        );
        let tags = [("k".to_owned(), "v".to_owned()), ("other".to_owned(), "x".to_owned())];
        let ends = |key, size, tags| {
            rules.object_ends(Subject { key, size, tags }, 10).map(|(ends, id)| (ends / DAY_MS, id.to_owned()))
        };
        let some = |day, id: &str| Some((day, id.to_owned()));
        assert_eq!(ends("logs/a", 1, &[]), some(6, "a"));
        assert_eq!(ends("logs/a", 1, &tags), some(3, "b"));
        assert_eq!(ends("logs/a", 101, &tags), some(1, "d"));
        assert_eq!(ends("other", 100, &[]), None);
        assert_eq!(rules.upload_ends("up/a", 10), Some((4 * DAY_MS, "e")));
        assert_eq!(rules.upload_ends("logs/a", 10), None);
    }
}
