//! Sizes and durations as people write them.

use std::time::Duration;

/// Parses `4096`, `4KiB`, `16 MiB`, `1GiB`, `10MB`, `4k` (binary, as `dd` has it) into bytes.
///
/// # Errors
/// When the number or the unit is not understood, or the result exceeds `u64`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no size: write 4096, 4KiB or 16MiB"))?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        other => return Err(format!("{other:?} is no unit of size: use KiB, MiB, GiB or KB, MB, GB")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is more than 2^64 bytes"))
}

/// Longest duration: clocks do not go on for ever, and nobody waits for that.
const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Parses `500ms`, `10s`, `2m`, `1h`, or plain seconds.
///
/// # Errors
/// When the number or the unit is not understood, or it is more than ten years.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no duration: write 500ms, 10s or 2m"))?;
    let duration = match unit {
        "ms" => Duration::from_millis(number),
        "" | "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(3600)),
        other => return Err(format!("{other:?} is no unit of time: use ms, s, m or h")),
    };
    if duration > DURATION_MAX { Err(format!("{text:?} is more than ten years")) } else { Ok(duration) }
}

/// Parses operations per second: `1000`, or `0.5`.
///
/// # Errors
/// When it is no number, or none between one in a thousand seconds and a billion in one.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.trim().parse().map_err(|_| format!("{text:?} is no rate: write 1000 or 0.5"))?;
    if (0.001..=1e9).contains(&rate) { Ok(rate) } else { Err(format!("{text:?} is not between 0.001 and 10^9")) }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Bytes with a binary unit and three digits, for people.
pub(crate) fn show_bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.2} GiB")
}

/// The same where nothing is lost by it, and all digits where something is: what differs is shown to.
#[expect(clippy::cast_precision_loss, reason = "what is rounded is not shown")]
pub(crate) fn show_exact_bytes(bytes: u64) -> String {
    match [1_u64 << 30, 1 << 20, 1 << 10].into_iter().find(|unit| bytes >= *unit) {
        // One digit behind the point has it all.
        Some(unit) if (bytes % unit * 10).is_multiple_of(unit) => show_bytes(bytes as f64),
        _ => format!("{bytes} B"),
    }
}

/// A number of things with three digits or a thousand's sign, for people.
pub(crate) fn show_count(count: f64) -> String {
    let (value, sign) = match count {
        count if count >= 9_999_500.0 => (count / 1e6, " M"),
        count if count >= 99_950.0 => (count / 1e3, " k"),
        count => (count, ""),
    };
    let digits = if value >= 100.0 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$}{sign}")
}

/// The same along an axis: whole thousands look alike.
pub(crate) fn show_round_count(count: f64) -> String {
    if (10_000.0..100_000.0).contains(&count) && count % 1000.0 == 0.0 {
        return format!("{:.0} k", count / 1000.0);
    }
    show_count(count)
}

/// A time in the unit that fits, for people.
pub(crate) fn show_us(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 999_500.0 => (us / 1e6, "s"),
        us if us >= 999.5 => (us / 1e3, "ms"),
        us => (us, "µs"),
    };
    let digits = if value >= 100.0 || value.fract() == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("4KiB", 4096), ("4k", 4096), ("16 MiB", 16 << 20), ("10MB", 10_000_000)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5MiB", "4 parsecs", "99999999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates() {
        for (text, rate) in [("1000", 1000.0), ("0.5", 0.5), ("1e3", 1000.0), ("0.001", 0.001)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "0", "-1", "fast", "inf", "NaN", "1e10", "1000/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [("500ms", 500), ("10s", 10_000), ("10", 10_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("87600h"), Ok(DURATION_MAX));
        for text in ["", "s", "1d", "-1s", "87601h", "18446744073709551615", "18446744073709551615h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown_figures() {
        assert_eq!([0.0, 12.34, 14_445.4, 123_456.0, 2e7].map(show_count), ["0", "12.3", "14445", "123 k", "20 M"]);
        assert_eq!([0.0, 5000.0, 50_000.0, 100_000.0].map(show_round_count), ["0", "5000", "50 k", "100 k"]);
        let times = [0.0, 5.128, 51.28, 512.8, 1000.0, 4211.0, 60e6].map(show_us);
        assert_eq!(times, ["0 µs", "5.13 µs", "51.3 µs", "513 µs", "1 ms", "4.21 ms", "60 s"]);
    }

    #[test]
    fn shown_bytes() {
        assert_eq!(show_bytes(12.0), "12.0 B");
        assert_eq!(show_bytes(4096.0), "4.0 KiB");
        assert_eq!(show_bytes(3.5 * 1024.0 * 1024.0 * 1024.0), "3.50 GiB");
        let exact = [0, 1000, 1024, 1025, 1536, 1_600_000, 3 << 30].map(show_exact_bytes);
        assert_eq!(exact, ["0 B", "1000 B", "1.0 KiB", "1025 B", "1.5 KiB", "1600000 B", "3.00 GiB"]);
    }
}
