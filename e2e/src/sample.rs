//! A manifest of the kind in `manifests/samples`: one `TunedWebServer` among other objects.

use std::path::{Path, PathBuf};

use kube::ResourceExt as _;
use serde::Deserialize as _;
use serde_yaml_ng::{Deserializer, Value};
use tunedweb_api::TunedWebServer;

/// Why a manifest is no sample.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The file could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not YAML, or its `TunedWebServer` does not fit the schema.
    #[error("parse a document of {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_yaml_ng::Error,
    },
    /// It has no `TunedWebServer` with a namespace.
    #[error("find a TunedWebServer with a namespace in {}", path.display())]
    Find {
        /// The file.
        path: PathBuf,
    },
}

/// The `TunedWebServer` of a manifest, and where it goes.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The resource.
    pub server: TunedWebServer,
}

impl Sample {
    /// Reads a manifest of one or more documents.
    pub fn read(path: &Path) -> Result<Self, SampleError> {
        let path = path.to_owned();
        let text = std::fs::read_to_string(&path).map_err(|source| SampleError::Read {
            path: path.clone(),
            source,
        })?;
        let found = parse(&text).map_err(|source| SampleError::Parse {
            path: path.clone(),
            source,
        })?;
        let named = found.and_then(|server| {
            Some(Self {
                namespace: server.namespace()?,
                name: server.name_any(),
                server,
            })
        });
        named.ok_or(SampleError::Find { path })
    }
}

fn parse(text: &str) -> Result<Option<TunedWebServer>, serde_yaml_ng::Error> {
    for document in Deserializer::from_str(text) {
        let value = Value::deserialize(document)?;
        if value.get("kind").and_then(Value::as_str) == Some("TunedWebServer") {
            return serde_yaml_ng::from_value(value).map(Some);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_of_the_demo_parses_as_the_resource_it_claims_to_be() {
        let path = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../manifests/samples/site.yaml"
        ));
        let sample = Sample::read(path).unwrap();
        assert_eq!(
            (sample.namespace.as_str(), sample.name.as_str()),
            ("web", "site")
        );
        assert!(!sample.server.spec.tuning.sysctls.is_empty());
        assert!(!sample.server.spec.benchmarks.is_empty());
    }

    #[test]
    fn a_manifest_without_the_resource_is_no_sample() {
        assert!(
            parse("kind: Namespace\n---\nkind: ConfigMap\n")
                .unwrap()
                .is_none()
        );
    }
}
