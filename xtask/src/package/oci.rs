// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Writes an image of one layer as an archive in the OCI's layout (image-spec 1.0), which podman, buildah, skopeo and
//! docker load.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// An image before it is written.
pub struct Image<'a> {
    /// Its name and tag.
    pub name: String,
    /// Its creation time, in seconds since 1970.
    pub epoch: u64,
    /// The same in RFC 3339's format.
    pub created: String,
    /// The program that a runtime starts and its environment: `config` of the image's configuration.
    pub config: Value,
    /// The files, as a tar archive.
    pub layer: &'a Path,
}

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An object that others refer to by its digest.
struct Blob {
    kind: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self {
            kind,
            digest,
            bytes,
        }
    }

    fn json(kind: &'static str, value: &Value) -> Result<Self> {
        Ok(Self::new(kind, serde_json::to_vec(value)?))
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.kind, "digest": format!("sha256:{}", self.digest), "size": self.bytes.len()})
    }
}

fn digest(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Image<'_> {
    /// Writes it to `file`, reproducibly.
    pub fn write(&self, file: &Path) -> Result<()> {
        let plain = fs::read(self.layer)
            .with_context(|| format!("cannot read {}", self.layer.display()))?;
        let difference = format!("sha256:{}", digest(&plain));
        drop(plain);
        let layer = Blob::new(LAYER, compressed(self.layer)?);
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "created": self.created,
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [difference]},
            "history": [{"created": self.created, "created_by": "cargo xtask package --images"}],
        });
        let config = Blob::json(CONFIG, &config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob::json(MANIFEST, &manifest)?;
        let mut named = manifest.descriptor();
        // The first one is in the specification; docker reads the second one.
        named["annotations"] = json!({
            "org.opencontainers.image.ref.name": self.name,
            "io.containerd.image.name": self.name,
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});

        let output =
            fs::File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        let mut archive = tar::Builder::new(std::io::BufWriter::new(output));
        let mut add = |path: &str, bytes: &[u8]| -> Result<()> {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(self.epoch);
            header.set_uid(0);
            header.set_gid(0);
            Ok(archive.append_data(&mut header, path, bytes)?)
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json", &serde_json::to_vec(&index)?)?;
        for blob in [&manifest, &config, &layer] {
            add(&format!("blobs/sha256/{}", blob.digest), &blob.bytes)?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }
}

/// A file compressed by gzip, without name and time.
fn compressed(file: &Path) -> Result<Vec<u8>> {
    let output = Command::new("gzip")
        .args(["-6", "--no-name", "--stdout"])
        .stdin(fs::File::open(file)?)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start gzip")?;
    ensure!(output.status.success(), "gzip failed");
    Ok(output.stdout)
}

/// Unpacks an archive in this layout: returns the configuration of its only image, and unpacks the layers' files into
/// `root`. Verifies every digest.
pub fn unpack(file: &Path, root: &Path) -> Result<Value> {
    let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
    tar::Archive::new(fs::File::open(file)?).unpack(directory.path())?;
    let blob = |descriptor: &Value| -> Result<Vec<u8>> {
        let named = descriptor["digest"].as_str().context("no digest")?;
        let sum = named.strip_prefix("sha256:").context("another digest")?;
        let bytes = fs::read(directory.path().join("blobs/sha256").join(sum))?;
        ensure!(digest(&bytes) == sum, "{named} has other contents");
        ensure!(
            descriptor["size"] == bytes.len(),
            "{named} has another size"
        );
        Ok(bytes)
    };
    let index = fs::read(directory.path().join("index.json"))?;
    let index: Value = serde_json::from_slice(&index)?;
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])?)?;
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])?)?;
    let layers = manifest["layers"].as_array().context("no layers")?;
    let differences = &config["rootfs"]["diff_ids"];
    for (at, layer) in layers.iter().enumerate() {
        let packed = tempfile::NamedTempFile::new()?;
        fs::write(packed.path(), blob(layer)?)?;
        let plain = Command::new("gzip")
            .args(["--decompress", "--stdout"])
            .stdin(packed.reopen()?)
            .output()
            .context("cannot start gzip")?;
        ensure!(plain.status.success(), "gzip failed");
        let sum = format!("sha256:{}", digest(&plain.stdout));
        ensure!(differences[at] == sum, "a layer has another sum");
        fs::write(packed.path(), plain.stdout)?;
        let mut command = Command::new("tar");
        command.args([
            "--extract",
            "--same-permissions",
            "--numeric-owner",
            "--file",
        ]);
        command.arg(packed.path()).arg("--directory").arg(root);
        crate::process::capture(&mut command)?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_can_be_unpacked_and_reproduced() {
        let directory = tempfile::tempdir().unwrap();
        let layer = directory.path().join("layer");
        let mut archive = tar::Builder::new(fs::File::create(&layer).unwrap());
        let mut header = tar::Header::new_ustar();
        header.set_size(2);
        header.set_mode(0o755);
        archive
            .append_data(&mut header, "bin/it", &b"it"[..])
            .unwrap();
        archive.finish().unwrap();
        let image = Image {
            name: "it:1".to_owned(),
            epoch: 1,
            created: "1970-01-01T00:00:01Z".to_owned(),
            config: json!({"Entrypoint": ["/bin/it"]}),
            layer: &layer,
        };
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        image.write(&one).unwrap();
        image.write(&other).unwrap();
        assert_eq!(fs::read(&one).unwrap(), fs::read(&other).unwrap());
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        let config = unpack(&one, &root).unwrap();
        assert_eq!(config["config"]["Entrypoint"][0], "/bin/it");
        assert_eq!(fs::read(root.join("bin/it")).unwrap(), b"it");

        // Change one byte of the layer.
        let mut bytes = fs::read(&one).unwrap();
        let at = bytes
            .windows(2)
            .rposition(|two| two == b"\x1f\x8b")
            .unwrap();
        bytes[at + 12] ^= 1;
        fs::write(&one, bytes).unwrap();
        assert!(unpack(&one, &root).is_err());
    }
}
