//! Links between the pages of the documentation.

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::build::root;

    /// The pages, each with the anchors of its headings, as GitHub makes them.
    fn pages() -> BTreeMap<PathBuf, (String, BTreeSet<String>)> {
        let mut files = vec![root().join("README.md")];
        let directories = ["docs", "docs/decisions", "charts/bellwether", "e2e/cluster"];
        for directory in directories {
            let entries = fs::read_dir(root().join(directory)).unwrap();
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
        files.retain(|file| file.extension().is_some_and(|e| e == "md"));
        let page = |file: PathBuf| {
            let text = fs::read_to_string(&file).unwrap();
            let prose = prose(&text);
            let headings = prose.lines().filter(|l| l.starts_with('#'));
            let headings = headings.map(anchor).collect();
            (file, (text, headings))
        };
        files.into_iter().map(page).collect()
    }

    /// The text without blocks of code.
    fn prose(text: &str) -> String {
        let parts = text.split("```").step_by(2);
        parts.collect::<Vec<_>>().join("")
    }

    fn anchor(heading: &str) -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let keep = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        heading
            .chars()
            .filter(keep)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    }

    #[test]
    fn every_link_leads_to_a_file_and_a_heading_that_exist() {
        let pages = pages();
        let (mut links, mut dead) = (0, Vec::new());
        for (file, (text, anchors)) in &pages {
            let prose = prose(text);
            let targets = prose.split("](").skip(1).filter_map(|t| t.split_once(')'));
            for (target, _) in targets.filter(|(t, _)| !t.contains("://")) {
                links += 1;
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let there = if path.is_empty() {
                    file.clone()
                } else {
                    file.parent().unwrap_or(Path::new("")).join(path)
                };
                let there = fs::canonicalize(&there).unwrap_or(there);
                let known = |anchors: &BTreeSet<String>| anchors.contains(heading);
                let own = path.is_empty().then_some(anchors);
                let of_page = own.or_else(|| pages.get(&there).map(|(_, anchors)| anchors));
                let fine = there.exists() && (heading.is_empty() || of_page.is_some_and(known));
                if !fine {
                    dead.push(format!("{}: {target}", file.display()));
                }
            }
        }
        assert!(links > 50, "only {links} links were found");
        assert!(dead.is_empty(), "{dead:#?}");
    }

    /// The pages that stand beside the generated ones must be found from the first page.
    #[test]
    fn the_readme_leads_to_every_page() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let mut missing = Vec::new();
        for entry in fs::read_dir(root().join("docs")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") && !readme.contains(&format!("(docs/{name})")) {
                missing.push(name);
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}
