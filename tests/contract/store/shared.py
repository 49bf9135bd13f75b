"""What the gateways of a shared store agree on."""

from dataclasses import replace

from tests.unit.gateway import stored

POLICY = replace(stored.POLICY, max_head_off_policyness=1, rollout_batch_size=8, max_size=32, judge_slots=3)
"""Capacity 16."""
