//! Reading one value by what the catalogue says of its key.

use crate::catalogue::{Key, Shape};
use crate::value::{PortSet, Value, parse_number};

/// What is wrong with a value.
pub(super) struct WrongValue {
    /// Why.
    pub(super) reason: String,
    /// What to use.
    pub(super) instead: &'static str,
}

/// Reads a value as strictly as it may be written: the kernel takes octal and hexadecimal numbers,
/// short vectors and empty text without a word.
pub(super) fn parse_value(key: &'static Key, text: &str) -> Result<Value, WrongValue> {
    match key.shape {
        Shape::Numbers { arity, min, max } => parse_numbers(key, text, arity, min, max),
        Shape::Ports => match PortSet::parse(text) {
            Some(ports) if ports.first().is_some_and(|port| port > 0) => Ok(Value::Ports(ports)),
            _ => Err(wrong(key, "not a list of ports and rising ranges")),
        },
        Shape::Word { length_max } => {
            let fits = (1..=length_max).contains(&text.len());
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            if fits && text.bytes().all(plain) {
                Ok(Value::Word(text.to_owned()))
            } else {
                Err(wrong(key, key.range_reason))
            }
        }
    }
}

fn parse_numbers(
    key: &'static Key,
    text: &str,
    arity: usize,
    min: u64,
    max: u64,
) -> Result<Value, WrongValue> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(parse_number).collect();
    let Some(numbers) = numbers else {
        return Err(wrong(
            key,
            "not plain decimal numbers separated by single spaces (the kernel would read a \
             leading 0 as octal)",
        ));
    };
    if numbers.len() != arity {
        let reason = format!(
            "{} numbers where {arity} are needed (the kernel would leave the rest as it is)",
            numbers.len()
        );
        return Err(wrong(key, &reason));
    }
    if let [number] = numbers[..]
        && let Some(rule) = key.refused_values.iter().find(|rule| rule.value == number)
    {
        return Err(WrongValue {
            reason: rule.reason.to_owned(),
            instead: rule.instead,
        });
    }
    if numbers.iter().any(|number| !(min..=max).contains(number)) {
        return Err(wrong(key, key.range_reason));
    }
    if !numbers.is_sorted() {
        return Err(wrong(
            key,
            "the numbers fall, which the kernel may accept and then misbehave",
        ));
    }
    Ok(Value::Numbers(numbers))
}

fn wrong(key: &'static Key, reason: &str) -> WrongValue {
    WrongValue {
        reason: reason.to_owned(),
        instead: key.advice,
    }
}
