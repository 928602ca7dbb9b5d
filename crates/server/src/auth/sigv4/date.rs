//! `x-amz-date`, which is `YYYYMMDDTHHMMSSZ`, as a moment.

/// Bytes of a date.
pub(super) const DATE_BYTES: usize = 16;
/// Bytes of its day, which a scope names.
pub(in crate::auth) const DAY_BYTES: usize = 8;

/// Unix time in seconds; nothing when it is no date of the calendar.
pub(in crate::auth) fn unix_seconds(date: &str) -> Option<i64> {
    let digits: &[u8; DATE_BYTES] = date.as_bytes().try_into().ok()?;
    let number = |from: usize, to: usize| {
        digits[from..to]
            .iter()
            .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    let leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leaps),
        _ => 31,
    };
    let is_date = digits[8] == b'T'
        && digits[15] == b'Z'
        && (1..=12).contains(&month)
        && (1..=days).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    is_date.then(|| days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days of the Gregorian calendar, counted in years that begin in March, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let in_year = (153 * months + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + in_year - 719_468
}

#[cfg(test)]
mod tests {
    use s3s_sigv4::AmzDate;

    use super::*;

    fn expected(date: &str) -> Option<i64> {
        Some(AmzDate::parse(date).ok()?.to_time()?.as_second())
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(unix_seconds("19700101T000000Z"), Some(0));
        assert_eq!(unix_seconds("20151021T072800Z"), Some(1_445_412_480));
        for year in [0, 1, 4, 100, 400, 1600, 1900, 1970, 1999, 2000, 2023, 2024, 2026, 2100, 9998] {
            for month in 0..=13 {
                for day in [0, 1, 15, 28, 29, 30, 31, 32] {
                    let date = format!("{year:04}{month:02}{day:02}T235901Z");
                    assert_eq!(unix_seconds(&date), expected(&date), "{date}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for date in [
            "",
            "20260101",
            "20260101T000000",
            "20260101T000000ZZ",
            "20260101t000000Z",
            "2026010 T000000Z",
            "20260101T240000Z",
            "20260101T006000Z",
            "20260101T000060Z",
            "+0260101T000000Z",
            "20260101T0000ü0Z",
        ] {
            assert_eq!((unix_seconds(date), expected(date)), (None, None), "{date}");
        }
    }
}
