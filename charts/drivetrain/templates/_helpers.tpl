{{- define "drivetrain.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 50 characters: suffixes such as "-metrics" keep it a DNS label. */}}
{{- define "drivetrain.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "drivetrain.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Of objects without a namespace: releases of one name in two namespaces do not collide. */}}
{{- define "drivetrain.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "drivetrain.fullname" .) -}}
{{- end -}}

{{- define "drivetrain.selector" -}}
app.kubernetes.io/name: {{ include "drivetrain.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* No helm.sh/chart label: the pods would be replaced by every chart version. */}}
{{- define "drivetrain.labels" -}}
{{- $labels := include "drivetrain.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- toYaml (merge $labels .Values.extraLabels) -}}
{{- end -}}

{{- define "drivetrain.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "drivetrain.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "drivetrain.leaseName" -}}
{{- default (include "drivetrain.fullname" .) .Values.leaderElection.leaseName -}}
{{- end -}}

{{/* Takes (dict "image" IMAGE "root" .). */}}
{{- define "drivetrain.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* What the schema cannot say in words that help. */}}
{{- define "drivetrain.validate" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) -}}
{{- fail (printf "replicas is %d with leaderElection.enabled false: only one operator may act; enable leaderElection or set replicas to 1" (int .Values.replicas)) -}}
{{- end -}}
{{- if eq (int .Values.metrics.port) (int .Values.health.port) -}}
{{- fail (printf "metrics.port and health.port are both %d: they must differ" (int .Values.health.port)) -}}
{{- end -}}
{{- end -}}
