//! Dates of conditions: ISO 8601 as the W3C has it, or seconds since 1970.

/// Milliseconds since 1970.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    let is_year = text.len() == 4;
    if !is_year && (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse::<i64>().ok()?.checked_mul(1000);
    }
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = parts.next().map_or(Some(1), |part| digits(part, 2))?;
    let day = parts.next().map_or(Some(1), |part| digits(part, 2))?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    if time.is_some() && date.len() != "2026-01-01".len() {
        return None;
    }
    let of_day_ms = time.map_or(Some(0), time_of_day)?;
    Some(days_since_1970(year, month, day) * 86_400_000 + of_day_ms)
}

/// `hh:mm[:ss[.fraction]]` with `Z` or an offset, in milliseconds of the day in UTC.
fn time_of_day(text: &str) -> Option<i64> {
    let (clock, offset_min) = match text.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        None => {
            let at = text.rfind(['+', '-'])?;
            let (hours, minutes) = text[at + 1..].split_once(':')?;
            let minutes = digits(hours, 2)? * 60 + digits(minutes, 2)?;
            (&text[..at], if text[at..].starts_with('-') { -minutes } else { minutes })
        }
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = parts.next().map_or(Some(0), |part| digits(part, 2))?;
    let is_time = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    let is_fraction = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_time || !is_fraction {
        return None;
    }
    let padded = format!("{fraction:0<3}");
    let milliseconds: i64 = padded.get(..3)?.parse().ok()?;
    Some(((hour * 60 + minute - offset_min) * 60 + second) * 1000 + milliseconds)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    if text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Of the Gregorian calendar, also before it was one; years begin in March, so that the day of a leap year is their last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn dates_are_milliseconds() {
        let table = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970", Some(0)),
            ("1970-02", Some(31 * 86_400_000)),
            ("2000-02-29", Some(951_782_400_000)),
            ("2026-11-21T20:30:17Z", Some(1_795_293_017_000)),
            ("2026-11-21T20:30:17.5Z", Some(1_795_293_017_500)),
            ("2026-11-21T22:30:17+02:00", Some(1_795_293_017_000)),
            ("2026-11-21T20:30Z", Some(1_795_293_000_000)),
            ("1795293017", Some(1_795_293_017_000)),
            ("0", Some(0)),
            ("0000-01-01", Some(-62_167_219_200_000)),
            ("2026-02-29", None),
            ("2026-13-01", None),
            ("2026-11-21T25:00:00Z", None),
            ("2026-11-21T20:30:17", None),
            ("2026-11T20:30:17Z", None),
            ("2026-11-21T20:30:17.Z", None),
            ("2026-11-21Tü+00:00", None),
            ("", None),
            ("-", None),
            ("soon", None),
            ("99999999999999999999", None),
        ];
        for (text, expected) in table {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
