{{/* The operator's settings, each as DRIVETRAIN_OPERATOR_<NAME>. */}}
{{- define "drivetrain.environment" -}}
- name: DRIVETRAIN_OPERATOR_NAMESPACES
  value: {{ join "," .Values.namespaces | quote }}
- name: DRIVETRAIN_OPERATOR_TRAINER_IMAGE
  value: {{ include "drivetrain.image" (dict "image" .Values.trainer.image "root" .) | quote }}
- name: DRIVETRAIN_OPERATOR_SHM_SIZE
  value: {{ .Values.trainer.shmSize | quote }}
- name: DRIVETRAIN_OPERATOR_RUN_AS_USER
  value: {{ .Values.trainer.runAsUser | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_TOLERATION_SECONDS
  value: {{ .Values.trainer.tolerationSeconds | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_RENDEZVOUS_PORT
  value: {{ .Values.trainer.rendezvousPort | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_WORKERS
  value: {{ .Values.operator.workers | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_RESYNC_SECONDS
  value: {{ .Values.operator.resyncSeconds | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_PROGRESS_INTERVAL_SECONDS
  value: {{ .Values.operator.progressIntervalSeconds | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_WATCH_SILENCE_SECONDS
  value: {{ .Values.operator.watchSilenceSeconds | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_STUCK_SECONDS
  value: {{ .Values.operator.stuckSeconds | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_HEALTH_PORT
  value: {{ .Values.health.port | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_METRICS_PORT
  value: {{ .Values.metrics.port | int64 | quote }}
- name: DRIVETRAIN_OPERATOR_LEADER_ELECT
  value: {{ .Values.leaderElection.enabled | quote }}
- name: DRIVETRAIN_OPERATOR_LEASE_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: DRIVETRAIN_OPERATOR_LEASE_NAME
  value: {{ include "drivetrain.leaseName" . | quote }}
- name: DRIVETRAIN_OPERATOR_LOG_LEVEL
  value: {{ .Values.operator.logLevel | quote }}
- name: DRIVETRAIN_OPERATOR_LOG_FORMAT
  value: {{ .Values.operator.logFormat | quote }}
{{- end -}}
