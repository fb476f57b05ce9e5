#!/usr/bin/env bash
# A kind cluster with Drivetrain in it and an example run applied. Run again, it goes on from
# what is there: a cluster is kept, images are built and loaded anew, the release is upgraded.
#
# Usage: hack/kind/up.sh [--no-run] [--down]
#   --no-run   apply no example run
#   --down     delete the cluster instead
# Environment:
#   CLUSTER=drivetrain     name of the kind cluster
#   NAMESPACE=default      namespace of the example run
#   RUN=examples/...       manifest of the example run
#   VARIANT=cpu            torch of the trainer's image: cpu or cuda
#   OPERATOR_IMAGE, TRAINER_IMAGE   images to load instead of building them
set -euo pipefail
cd "$(dirname "$0")/../.."

CLUSTER=${CLUSTER:-drivetrain}
NAMESPACE=${NAMESPACE:-default}
RUN=${RUN:-examples/half-cheetah-sac.yaml}
VARIANT=${VARIANT:-cpu}
TAG=$(date -u +%Y%m%d%H%M%S) # a new tag rolls the operator out
apply=true

usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; }
fail() { echo "up.sh: $*" >&2; exit 1; }
say() { echo "--- $*"; }

for argument in "$@"; do
  case "$argument" in
    --no-run) apply=false ;;
    --down) command -v kind >/dev/null || fail "kind is not on PATH"
            exec kind delete cluster --name "$CLUSTER" ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; fail "unknown argument $argument" ;;
  esac
done

for program in docker kind kubectl helm; do
  command -v "$program" >/dev/null || fail "$program is not on PATH; see docs/guide/kind.md"
done
docker info >/dev/null 2>&1 || fail "the Docker engine does not answer; start it and try again"
[ -f "$RUN" ] || fail "RUN=$RUN is no file"

if ! kind get clusters 2>/dev/null | grep -qx "$CLUSTER"; then
  say "creating cluster $CLUSTER"
  kind create cluster --name "$CLUSTER" --config hack/kind/cluster.yaml --wait 120s
fi
kube() { kubectl --context "kind-$CLUSTER" "$@"; }

image() { # NAME GIVEN BUILD-ARGUMENTS...: the image to use; built unless one is given
  local name=$1 given=$2
  shift 2
  if [ -n "$given" ]; then
    [[ ${given##*/} == *:* ]] || fail "$given has no tag; name it as REPOSITORY:TAG"
    echo "$given"
    return
  fi
  say "building $name:$TAG" >&2
  docker build -f "${name#drivetrain-}/Dockerfile" -t "$name:$TAG" "$@" . >&2
  echo "$name:$TAG"
}
operator=$(image drivetrain-operator "${OPERATOR_IMAGE:-}")
trainer=$(image drivetrain-trainer "${TRAINER_IMAGE:-}" --build-arg "VARIANT=$VARIANT")

say "loading $operator and $trainer into the nodes"
kind load docker-image --name "$CLUSTER" "$operator" "$trainer"

say "installing the chart"
helm upgrade --install drivetrain charts/drivetrain \
  --kube-context "kind-$CLUSTER" --namespace drivetrain-system --create-namespace \
  --set-string "image.repository=${operator%:*}" --set-string "image.tag=${operator##*:}" \
  --set-string "trainer.image.repository=${trainer%:*}" \
  --set-string "trainer.image.tag=${trainer##*:}" \
  --wait --timeout 5m

if $apply; then
  say "applying $RUN in namespace $NAMESPACE"
  kube create namespace "$NAMESPACE" --dry-run=client -o yaml | kube apply -f - >/dev/null
  kube apply --namespace "$NAMESPACE" -f "$RUN"
fi
say "watch it:"
echo "kubectl --context kind-$CLUSTER --namespace $NAMESPACE get trun -w"
