//! `docs/api.md`: every field, condition and reason, from the definitions themselves.

use std::fmt::Write as _;

use serde_json::Value;
use tunedweb_api::condition::{ConditionType, Reason};

/// The whole page.
pub(crate) fn markdown() -> String {
    let mut page = String::from(HEAD);
    for definition in tunedweb_api::custom_resource_definitions() {
        let definition = serde_json::to_value(definition).expect("a definition is JSON");
        kind(&mut page, &definition);
    }
    page.push_str("\n## Condition types\n\n| type | is True when |\n|---|---|\n");
    for word in ConditionType::ALL {
        line(&mut page, &[&code(word.as_str()), word.description()]);
    }
    page.push_str("\n## Reasons\n\n| reason | says |\n|---|---|\n");
    for word in Reason::ALL {
        line(&mut page, &[&code(word.as_str()), word.description()]);
    }
    page
}

const HEAD: &str = "<!-- Generated from operator/api/src. Do not edit. -->
# API reference

`tunedweb.io/v1alpha1`. `[]` stands for the items of a list, `{}` for the values of a map. A field without a default may be
omitted unless it is marked *required*.
";

fn kind(page: &mut String, definition: &Value) {
    let names = &definition["spec"]["names"];
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let scope = text(&definition["spec"]["scope"]).to_lowercase();
    let short = text(&names["shortNames"][0]);
    let _ = write!(
        page,
        "\n## {}\n\n{} Scope: {scope}. Short name: `{short}`.\n",
        text(&names["kind"]),
        text(&schema["description"]),
    );
    let mut rules = Vec::new();
    collect_rules("", schema, &mut rules);
    for part in ["spec", "status"] {
        let _ = write!(
            page,
            "\n### {} {part}\n\n| field | type | permitted | default | description |\n|---|---|---|---|---|\n",
            text(&names["kind"])
        );
        fields(page, part, &schema["properties"][part]);
    }
    if !rules.is_empty() {
        let _ = write!(
            page,
            "\n### {} rules\n\n| where | rule |\n|---|---|\n",
            text(&names["kind"])
        );
        for (place, message) in rules {
            let place = if place.is_empty() {
                "the object".to_owned()
            } else {
                code(&place)
            };
            line(page, &[&place, &message]);
        }
    }
}

fn fields(page: &mut String, path: &str, schema: &Value) {
    let empty = serde_json::Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&empty) {
        let required = list(&schema["required"]).any(|required| required == name);
        let path = format!("{path}.{name}");
        let permitted = [
            permitted(field),
            if required {
                "*required*".to_owned()
            } else {
                String::new()
            },
        ]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
        let default = match &field["default"] {
            Value::Null => String::new(),
            default => code(&default.to_string()),
        };
        line(
            page,
            &[
                &code(&path),
                &kind_of(field),
                &permitted,
                &default,
                text(&field["description"]),
            ],
        );
        let (below, suffix) = inner(field);
        // conditions are those of every Kubernetes resource
        if name != "conditions" {
            fields(page, &format!("{path}{suffix}"), below);
        }
    }
}

/// The schema of the items or values, and how their path continues.
fn inner(field: &Value) -> (&Value, &'static str) {
    match (&field["items"], &field["additionalProperties"]) {
        (Value::Object(_), _) => (&field["items"], "[]"),
        (_, Value::Object(_)) => (&field["additionalProperties"], "{}"),
        _ => (field, ""),
    }
}

fn kind_of(field: &Value) -> String {
    let (below, suffix) = inner(field);
    match suffix {
        "[]" => format!("list of {}", kind_of(below)),
        "{}" => format!("map of {}", kind_of(below)),
        _ => text(&field["type"]).to_owned(),
    }
}

fn permitted(field: &Value) -> String {
    let mut parts = Vec::new();
    if field["enum"].is_array() {
        let words: Vec<String> = list(&field["enum"]).map(code).collect();
        parts.push(words.join(", "));
    }
    let bound = |name: &str| field[name].as_f64().map(|number| format!("{number}"));
    match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) => parts.push(format!("{min} to {max}")),
        (Some(min), None) => parts.push(format!("at least {min}")),
        (None, Some(max)) => parts.push(format!("at most {max}")),
        (None, None) => {}
    }
    for (name, unit) in [
        ("maxLength", "characters"),
        ("maxItems", "items"),
        ("maxProperties", "entries"),
    ] {
        if let Some(max) = field[name].as_u64() {
            parts.push(format!("at most {max} {unit}"));
        }
    }
    if let Some(pattern) = field["pattern"].as_str() {
        parts.push(code(pattern));
    }
    let (below, suffix) = inner(field);
    if !suffix.is_empty() && below["properties"].is_null() {
        let each = permitted(below);
        if !each.is_empty() {
            parts.push(format!("each {each}"));
        }
    }
    parts.join("; ")
}

fn collect_rules(path: &str, schema: &Value, rules: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let message = rule["message"]
            .as_str()
            .or_else(|| rule["messageExpression"].as_str());
        rules.push((
            path.to_owned(),
            message.expect("each rule has a message").to_owned(),
        ));
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let (inner, suffix) = inner(below);
        collect_rules(&path, below, rules);
        if !suffix.is_empty() {
            collect_rules(&format!("{path}{suffix}"), inner, rules);
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// One row; a bar inside a cell would end it.
fn line(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells
        .iter()
        .map(|cell| {
            cell.replace('|', "\\|")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
