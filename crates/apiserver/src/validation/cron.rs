//! The times in a `CronJob`'s schedule, and what is said of those that are none.

/// The least and the most of each of the five fields, and the names some of them have.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// What is wrong with a schedule, if anything.
pub(super) fn complaint(schedule: &str) -> Option<String> {
    check(schedule).err()
}

fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    // A time zone in front is refused by another rule; what follows is looked at all the same.
    let schedule = if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        schedule.split_once(' ').map_or("", |(_, rest)| rest).trim()
    } else {
        schedule
    };
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(schedule: &str) -> Result<(), String> {
    match schedule {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match schedule.strip_prefix("@every ") {
            Some(span) => span_complaint(span)
                .map_or(Ok(()), |complaint| Err(format!("failed to parse duration {schedule}: {complaint}"))),
            None => Err(format!("unrecognized descriptor: {schedule}")),
        },
    }
}

fn check_range(range: &str, (least, most, names): (u32, u32, &[&str])) -> Result<(), String> {
    let parts: Vec<&str> = range.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => (least, most),
        [one] => {
            let one = number(one, names)?;
            (one, one)
        }
        [start, end] => (number(start, names)?, number(end, names)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let step = match parts[..] {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = most;
            }
            number(step, &[])?
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {range}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number(text: &str, names: &[&str]) -> Result<u32, String> {
    // Months are counted from one, days of the week from none.
    let least = u32::from(names.len() == 12);
    if let Some(place) = names.iter().position(|name| *name == text.to_lowercase()) {
        return Ok(least + u32::try_from(place).unwrap_or(0));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        }
    }
}

/// What is wrong with a span of time (numbers, each with its unit), if anything.
fn span_complaint(text: &str) -> Option<String> {
    let invalid = || Some(format!("time: invalid duration {text:?}"));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let digits = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        if rest[..digits].parse::<f64>().is_err() {
            return invalid();
        }
        let length = rest[digits..].find(is_number).unwrap_or(rest.len() - digits);
        match &rest[digits..digits + length] {
            "" => return Some(format!("time: missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = &rest[digits + length..],
            unit => return Some(format!("time: unknown unit {unit:?} in duration {text:?}")),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn schedules_are_read_as_kube_apiserver_reads_them() {
        for good in
            ["* * * * *", "*/5 0-6 1,15 jan-mar SUN", "@daily", "@every 1h30m", "? 1/2 * * ?", "0 0 * * 6"]
        {
            assert_eq!(complaint(good), None, "{good}");
        }
        for (bad, text) in [
            ("", "empty spec string"),
            ("a b c", "expected exactly 5 fields, found 3: [a b c]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every 1x", "failed to parse duration @every 1x: time: unknown unit \"x\" in duration \"1x\""),
            ("@every 1", "failed to parse duration @every 1: time: missing unit in duration \"1\""),
            ("@every h", "failed to parse duration @every h: time: invalid duration \"h\""),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ] {
            assert_eq!(complaint(bad).as_deref(), Some(text), "{bad}");
        }
    }
}
