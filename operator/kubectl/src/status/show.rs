//! The answer as text, for people.

use std::fmt;

use super::summary::{BenchmarkLine, NodeLine, Summary, validity_cell, verdict_cell};
use crate::table::Table;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(f)?;
        self.conditions(f)?;
        self.nodes(f)?;
        self.keys(f)?;
        self.benchmarks(f)?;
        self.on_delete(f)?;
        for problem in &self.problems {
            writeln!(f, "\nNot shown: {problem}")?;
        }
        Ok(())
    }
}

impl Summary {
    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TunedWebServer {}/{}", self.namespace, self.name)?;
        if self.deleting {
            write!(f, ", being deleted")?;
        }
        if self.observed_generation < self.generation {
            write!(
                f,
                ": the status answers generation {}, the spec is at {}",
                self.observed_generation, self.generation
            )?;
        }
        writeln!(f)
    }

    fn conditions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.conditions.is_empty() {
            return writeln!(f, "\nNo conditions yet: the operator has not seen it");
        }
        let mut table = Table::new(["CONDITION", "STATUS", "REASON", "MESSAGE"]);
        for condition in &self.conditions {
            let outdated = if condition.outdated {
                " (outdated)"
            } else {
                ""
            };
            table.push([
                condition.kind.clone(),
                format!("{}{outdated}", condition.status),
                condition.reason.clone(),
                condition.message.clone(),
            ]);
        }
        write!(f, "\n{table}")
    }

    fn nodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.node_counts;
        writeln!(
            f,
            "\nNodes: {} desired, {} tuned, {} serving, {} failed, {} unreachable",
            counts.desired, counts.tuned, counts.serving, counts.failed, counts.unreachable
        )?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(["NODE", "SERVING", "NODE-WIDE KEYS", "PROBLEM"]);
        for node in &self.nodes {
            table.push([
                node.name.clone(),
                serving_cell(node).to_owned(),
                node.tuning.clone().unwrap_or_else(|| "None".to_owned()),
                node.problem.clone(),
            ]);
        }
        write!(f, "{table}")
    }

    fn keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "NODE", "KEY", "WANTED", "FOUND", "BASELINE", "STATE", "REASON",
        ]);
        let rows = self
            .nodes
            .iter()
            .flat_map(|node| node.keys.iter().map(move |key| (node, key)));
        let mut any = false;
        for (node, key) in rows {
            any = true;
            table.push([
                node.name.clone(),
                key.name.clone(),
                key.wanted.clone(),
                key.found.clone(),
                key.baseline.clone(),
                format!("{:?}", key.state),
                key.reason.clone(),
            ]);
        }
        if any { write!(f, "\n{table}") } else { Ok(()) }
    }

    fn benchmarks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.benchmarks.is_empty() {
            return Ok(());
        }
        let mut table = Table::new([
            "BENCHMARK",
            "RUN",
            "QPS",
            "P50(µs)",
            "P99(µs)",
            "P99.9(µs)",
            "ERRORS",
            "VALIDITY",
            "VERDICT",
        ]);
        for benchmark in &self.benchmarks {
            table.push(benchmark_row(benchmark));
        }
        write!(f, "\n{table}")
    }

    fn on_delete(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.on_delete.is_empty() {
            let mut table = Table::new(["NODE", "KEY", "NOW", "AFTER DELETING"]);
            for line in &self.on_delete {
                let afterwards = [&line.afterwards, &line.note];
                let afterwards: Vec<&str> = afterwards
                    .into_iter()
                    .map(String::as_str)
                    .filter(|text| !text.is_empty())
                    .collect();
                table.push([
                    line.node.clone(),
                    line.key.clone(),
                    line.now.clone(),
                    afterwards.join(": "),
                ]);
            }
            write!(f, "\n{table}")?;
        }
        if !self.keys_of_pods.is_empty() {
            writeln!(
                f,
                "\nThese end with the pods: {}",
                self.keys_of_pods.join(", ")
            )?;
        }
        Ok(())
    }
}

fn serving_cell(node: &NodeLine) -> &'static str {
    match node.serving {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "NoPod",
    }
}

fn benchmark_row(benchmark: &BenchmarkLine) -> [String; 9] {
    let name = benchmark.name.clone();
    let Some(result) = &benchmark.result else {
        let mut row = [const { String::new() }; 9];
        row[0] = name;
        "NotRun".clone_into(&mut row[1]);
        return row;
    };
    [
        name,
        result.run.clone(),
        result.requests_per_second.to_string(),
        result.p50_microseconds.to_string(),
        result.p99_microseconds.to_string(),
        result.p999_microseconds.to_string(),
        result.errors.to_string(),
        validity_cell(&result.validity),
        verdict_cell(&result.verdict),
    ]
}
