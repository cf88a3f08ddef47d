#!/usr/bin/env bash
# run.sh FOLDER SECONDS: each fuzz target of the build in FOLDER for so long, starting from the seeds that test_fuzz writes,
# what earlier runs found new (FOLDER/corpus) and the regression seeds of corpus/. What a target fails on is left in
# FOLDER/findings: fix the cause and keep the input in corpus/<target>/.
set -euo pipefail
folder=$(realpath "$1") seconds=$2
here=$(realpath "$(dirname "$0")")
export FACULA_SOURCE=$(realpath "$here/../..")
FACULA_FUZZ_SEEDS=$folder/seeds "$folder/tests/test_fuzz" >/dev/null
mkdir -p "$folder/findings"
failed=0
for program in "$folder"/tests/fuzz_*; do
  target=${program##*/fuzz_}
  mkdir -p "$folder/corpus/$target"
  extra=()
  [ -d "$here/corpus/$target" ] && extra=("$here/corpus/$target")
  if "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=8192 \
      -artifact_prefix="$folder/findings/$target-" -print_final_stats=1 "$folder/corpus/$target" "$folder/seeds/$target" \
      "${extra[@]}" >"$folder/$target.log" 2>&1; then
    echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$target.log") inputs," \
      "$(grep -o 'cov: [0-9]*' "$folder/$target.log" | tail -n 1 | cut -d' ' -f2) places reached, nothing found"
  else
    echo "fuzz: $target FAILED, see $folder/$target.log:"
    tail -n 30 "$folder/$target.log"
    failed=1
  fi
done
exit $failed
