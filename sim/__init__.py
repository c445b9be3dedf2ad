"""What would happen: schedules, their verification, the network and the replay."""
