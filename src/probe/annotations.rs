//! Whether an image can have written a container's annotations. podman adds those of the image's manifest to the
//! caller's and marks none; its store has the manifests. Everything that the store does not tell counts as the image's.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::layer::read;
use crate::engines::annotation::{Annotations, is_crio, may_be_of_the_image};
use crate::engines::layout::{PODMAN_LISTS, is_id, podmans_driver};
use crate::policy::{ANNOTATION_PREFIX, ImageAnnotations};

/// The names of a manifest in a store: `manifest`, and `manifest-DIGEST` in base64 (containers/storage,
/// makeBigDataBaseName).
const MANIFEST: &str = "manifest";
const MANIFEST_OF_DIGEST: &str = "=bWFuaWZlc3Qt";
/// More manifests than an image has.
const MOST_MANIFESTS: usize = 64;

/// What podman's store tells of the image of the container with this bundle, `STORE/DRIVER-containers/ID/userdata`. A
/// container without annotations of ours needs no look.
pub fn of_image(bundle: &Path, annotations: &Annotations) -> ImageAnnotations {
    let ours = annotations
        .keys()
        .any(|key| key.starts_with(ANNOTATION_PREFIX));
    let asks = ours && may_be_of_the_image(annotations) && !is_crio(annotations);
    match asks && manifests_have_none(bundle) == Some(true) {
        true => ImageAnnotations::NoneOfOurs,
        false => ImageAnnotations::Unknown,
    }
}

/// Whether the image has manifests, none of which names an annotation of ours; `None` if the store does not tell.
fn manifests_have_none(bundle: &Path) -> Option<bool> {
    let container = bundle.parent().filter(|_| bundle.ends_with("userdata"))?;
    let id = container.file_name()?.to_str().filter(|id| is_id(id))?;
    let containers = container.parent()?;
    let driver = podmans_driver(containers.file_name()?.to_str()?)?;
    let mut lists = PODMAN_LISTS.into_iter().map(|list| containers.join(list));
    let image = lists.find_map(|list| image_of(&list, id))?;
    let images = containers.parent()?.join(format!("{driver}-images"));
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(images.join(image)).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        let name = name.to_str()?;
        if name == MANIFEST || name.starts_with(MANIFEST_OF_DIGEST) {
            texts.push(read(&entry.path())?);
        }
        if texts.len() > MOST_MANIFESTS {
            return None;
        }
    }
    let has_ours = |text: &String| serde_json::from_str(text).map(|Mentions(ours)| ours);
    let all: Result<Vec<bool>, _> = texts.iter().map(has_ours).collect();
    Some(!texts.is_empty() && !all.ok()?.contains(&true))
}

/// The image of a container in a list of the store; a container without one has `--rootfs`.
fn image_of(list: &Path, id: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        image: String,
    }
    let all: Vec<Entry> = serde_json::from_str(&read(list)?).ok()?;
    let own = all.into_iter().find(|entry| entry.id == id)?;
    Some(own.image).filter(|image| is_id(image))
}

/// Whether a key or a text of a JSON document is one of our annotations. It reads each key, also one that stands twice:
/// Go merges such objects, and a map of ours would keep one of them.
struct Mentions(bool);

impl<'de> Deserialize<'de> for Mentions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MentionsVisitor)
    }
}

struct MentionsVisitor;

impl<'de> Visitor<'de> for MentionsVisitor {
    type Value = Mentions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Mentions, E> {
        Ok(Mentions(text.contains(ANNOTATION_PREFIX)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Mentions, E> {
        Ok(Mentions(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Mentions, E> {
        Ok(Mentions(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Mentions, E> {
        Ok(Mentions(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Mentions, E> {
        Ok(Mentions(false))
    }

    fn visit_unit<E>(self) -> Result<Mentions, E> {
        Ok(Mentions(false))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Mentions, A::Error> {
        let mut ours = false;
        while let Some(Mentions(one)) = all.next_element()? {
            ours |= one;
        }
        Ok(Mentions(ours))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Mentions, A::Error> {
        let mut ours = false;
        while let Some((Mentions(key), Mentions(value))) = all.next_entry()? {
            ours |= key | value;
        }
        Ok(Mentions(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    const ID: &str = "86c916b67771a4d4e659ec6987d8a477c933a8ede44d7f139524aff398fc4d8f";
    const IMAGE: &str = "0643acf04b82809109980b5fef30c810b457747c72132aa884c02e97c8b0beed";

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn caller(keys: &[&str]) -> Annotations {
        let all = keys.iter().chain(&["io.container.manager"]);
        all.map(|key| ((*key).to_owned(), "libpod".to_owned()))
            .collect()
    }

    #[test]
    fn annotations_are_the_callers_only_if_no_manifest_can_have_them() {
        let dir = TestDir::new("image-annotations");
        let containers = dir.0.join("overlay-containers");
        let bundle = containers.join(ID).join("userdata");
        let images = dir.0.join("overlay-images").join(IMAGE);
        let ours = caller(&["dev.agentbox.network.allow"]);
        let told = || of_image(&bundle, &ours) == ImageAnnotations::NoneOfOurs;
        assert!(!told(), "no store");
        let list = format!(r#"[{{"id": "x"}}, {{"id": "{ID}", "image": "{IMAGE}"}}]"#);
        write(&containers.join("volatile-containers.json"), &list);
        assert!(!told(), "no image");
        write(&images.join("=c2hhMjU2OjA2"), "{\"config\": {}}");
        assert!(!told(), "no manifest");
        write(
            &images.join("manifest"),
            r#"{"schemaVersion": 2, "x": [1, -1, 1.5, null, true]}"#,
        );
        assert!(told());
        // The store keeps each manifest that leads to the same image.
        let other = images.join("=bWFuaWZlc3Qtc2hhMjU2OjAw");
        for text in [
            r#"{"annotations": {"dev.agentbox.policy": "permissive"}}"#,
            r#"{"annotations": {"dev\u002eagentbox.policy": "permissive"}}"#,
            r#"{"annotations": {"dev.agentbox.policy": "permissive"}, "annotations": {}}"#,
            r#"{"ANNOTATIONS": {"dev.agentbox.policy": "permissive"}}"#,
            r#"{"annotations": {"a": "b"}} {"annotations": {"dev.agentbox.policy": "x"}}"#,
            "no JSON",
            "",
        ] {
            write(&other, text);
            assert!(!told(), "{text}");
        }
        write(
            &other,
            r#"{"annotations": {"org.opencontainers.image.title": "x"}}"#,
        );
        assert!(told());
        // Others could have written it.
        std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .unwrap();
        assert!(!told());
        std::fs::remove_file(&other).unwrap();
        assert!(told());
        // CRI-O's keys stand beside an image's, and its callers are pods.
        let crio = caller(&["dev.agentbox.policy", "io.kubernetes.cri-o.Name"]);
        assert_eq!(of_image(&bundle, &crio), ImageAnnotations::Unknown);
        // A bundle elsewhere, and a container of another name.
        for other in [dir.0.join("bundle"), containers.join("x").join("userdata")] {
            assert_eq!(of_image(&other, &ours), ImageAnnotations::Unknown);
        }
    }
}
