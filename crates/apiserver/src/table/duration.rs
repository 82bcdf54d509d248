//! Durations as `kubectl` prints them.

/// A duration in seconds, with two or three significant digits: `45s`, `3m20s`, `5h`, `2d4h`, `400d`. Clocks may differ by a
/// second; a time further in the future is `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let pair = |large: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{part}"),
    };
    match (seconds, minutes, hours, days, years) {
        (..-1, ..) => "<invalid>".to_owned(),
        (-1, ..) => "0s".to_owned(),
        (..120, ..) => format!("{seconds}s"),
        (_, ..10, ..) => pair(minutes, "m", seconds % 60, "s"),
        (_, ..180, ..) => format!("{minutes}m"),
        (_, _, ..8, ..) => pair(hours, "h", minutes % 60, "m"),
        (_, _, ..48, ..) => format!("{hours}h"),
        (_, _, _, ..8, _) => pair(days, "d", hours % 24, "h"),
        (.., ..2) => format!("{days}d"),
        (.., ..8) => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        const HOUR: i64 = 3_600;
        const DAY: i64 = 24 * HOUR;
        let table = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (599, "9m59s"),
            (600, "10m"),
            (HOUR, "60m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (4 * HOUR + 120, "4h2m"),
            (8 * HOUR, "8h"),
            (48 * HOUR - 1, "47h"),
            (2 * DAY, "2d"),
            (3 * DAY + 2 * HOUR, "3d2h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (800 * DAY, "2y70d"),
            (8 * 365 * DAY + DAY, "8y"),
        ];
        for (seconds, expected) in table {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
