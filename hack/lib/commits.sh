#!/usr/bin/env bash
# hack/lib/commits.sh [RANGE]: checks the subjects of commits that are not on main yet: `area: imperative`, at most 72 characters.
# With `-` it reads subjects from standard input.
set -euo pipefail

subjects() {
    local main
    if [ "${1:-}" = - ]; then
        cat
    elif [ -n "${1:-}" ]; then
        git log --no-merges --format=%s "$1"
    else
        main=$(git rev-parse -q --verify origin/main || git rev-parse -q --verify main || true)
        [ -z "$main" ] || git log --no-merges --format=%s "$main..HEAD"
    fi
}

bad=0
while IFS= read -r subject; do
    if [ ${#subject} -gt 72 ] || ! [[ $subject =~ ^(Revert\ \"|[A-Za-z0-9][A-Za-z0-9,/_.\ -]*:\ [^A-Z\ ]).*[^.]$ ]]; then
        echo "not 'area: imperative' of at most 72 characters: $subject" >&2
        bad=1
    fi
done < <(subjects "$@")
exit $bad
